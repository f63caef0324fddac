"""Operating the server: Prometheus metrics and health checks, JSON logs, webhooks, and the watchdog.

Change it to change what operators see. Nothing here affects the result of a run; `app` and `lifecycle.process`
install it.
"""
