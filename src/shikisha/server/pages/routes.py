"""All pages, put together."""

from fastapi import APIRouter

from shikisha.server.pages import approvals, compare, keys, login, run, runs, trying, workers

router = APIRouter()
for each in (login, runs, run, approvals, workers, keys, compare, trying):
    router.include_router(each.router)
