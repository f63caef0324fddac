"""The chart kit: everything that is drawn on an HTML page, and the environment that renders such pages.

`svg` has scales, ticks and labels, `charts` the records that `pages/charts.html.jinja` draws, `run_charts` the graphs
and time lines of runs, `page` the template environment, `number_format` how figures are written. It knows `core` only;
evaluation, routing, training and the server's pages say what is drawn. Coordinates may change, markup may not load
anything.
"""
