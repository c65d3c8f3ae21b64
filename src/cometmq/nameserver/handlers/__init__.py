"""What a name server does for each request: reads the header, asks a table, answers.

One class per family; each adds its own codes to the routes. They know values and tables, not
sockets: the channel is only something to answer on and to know a broker's connection by.
"""
