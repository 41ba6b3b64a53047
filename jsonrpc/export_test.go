package jsonrpc

var ParseID = parseID
