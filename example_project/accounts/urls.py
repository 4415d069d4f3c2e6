"""URLs of the accounts."""

from django.urls import path

from example_project.accounts import views

app_name = "accounts"
urlpatterns = [path("register/", views.register, name="register")]
