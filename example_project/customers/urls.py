"""URLs of the customers' pages."""

from django.urls import path

from example_project.customers import views

app_name = "customers"
urlpatterns = [
    path("customers/", views.customers, name="list"),
    path("customers/new/", views.edit, name="new"),
    path("customers/<int:pk>/", views.edit, name="edit"),
    path("paperwork/", views.paperwork, name="paperwork"),
    path("paperwork/digest/", views.send_digest, name="send_digest"),
    path("paperwork/report/", views.write_report, name="write_report"),
]
