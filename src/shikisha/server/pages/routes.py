"""All pages, put together."""

from fastapi import APIRouter

from shikisha.server.pages import login, run, runs

router = APIRouter()
for each in (login, runs, run):
    router.include_router(each.router)
