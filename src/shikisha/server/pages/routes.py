"""All pages, put together."""

from fastapi import APIRouter

from shikisha.server.pages import approvals, compare, keys, login, run, runs, workers

router = APIRouter()
for each in (login, runs, run, approvals, workers, keys, compare):
    router.include_router(each.router)
