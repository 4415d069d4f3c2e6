"""The other side: a stand-in for a CRM that another company runs, as unreliable as such things are."""
