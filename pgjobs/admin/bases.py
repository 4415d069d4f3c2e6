"""Generic bases: Django's admin classes take type arguments for type checkers only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.core.paginator import Paginator

from ..models import Job, Pause, Schedule, Worker

if TYPE_CHECKING:
    JobBase = admin.ModelAdmin[Job]
    PauseBase = admin.ModelAdmin[Pause]
    ScheduleBase = admin.ModelAdmin[Schedule]
    WorkerBase = admin.ModelAdmin[Worker]
    PauseFormBase = forms.ModelForm[Pause]
    ScheduleFormBase = forms.ModelForm[Schedule]
    PaginatorBase = Paginator[Any]
else:
    JobBase = PauseBase = ScheduleBase = WorkerBase = admin.ModelAdmin
    PauseFormBase = ScheduleFormBase = forms.ModelForm
    PaginatorBase = Paginator

__all__ = [
    "JobBase",
    "PaginatorBase",
    "PauseBase",
    "PauseFormBase",
    "ScheduleBase",
    "ScheduleFormBase",
    "WorkerBase",
]
