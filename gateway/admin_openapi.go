package gateway

import (
	_ "embed"
	"encoding/json"
)

// openAPI is the OpenAPI document of the admin API. A test compares it with the routes and the Go
// types by which requests are decoded and responses are encoded.
//
//go:embed openapi.json
var openAPI json.RawMessage

func openAPIRoutes() []*adminRoute {
	route := getRoute("/openapi.json", "This document", func(*adminRequest, *noQuery) (*json.RawMessage, error) {
		return &openAPI, nil
	})
	return []*adminRoute{route}
}
