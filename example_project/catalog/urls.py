"""URLs of the catalog."""

from django.urls import path

from example_project.catalog import views

app_name = "catalog"
urlpatterns = [path("price-lists/", views.price_lists, name="price_lists")]
