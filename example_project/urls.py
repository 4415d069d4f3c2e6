"""URLs of the example project."""

from django.contrib import admin
from django.urls import include, path

from example_project.backoffice import views

urlpatterns = [
    path("", views.home, name="home"),
    path("", include("example_project.accounts.urls")),
    path("", include("example_project.catalog.urls")),
    path("", include("example_project.customers.urls")),
    path("crm/", include("example_project.crm.urls")),  # the other side, which happens to be served from here
    path("admin/", admin.site.urls),
]
