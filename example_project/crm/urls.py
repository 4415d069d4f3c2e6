"""URLs of the CRM."""

from django.urls import path

from example_project.crm import views

app_name = "crm"
urlpatterns = [path("customers/<int:pk>/", views.customer, name="customer")]
