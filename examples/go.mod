module github.com/patchbay-mcp/patchbay/examples

go 1.26.0

require (
	github.com/patchbay-mcp/patchbay v0.0.0
	github.com/patchbay-mcp/patchbay/stores v0.0.0
)

require (
	github.com/coreos/go-oidc/v3 v3.21.0 // indirect
	github.com/go-jose/go-jose/v4 v4.1.8 // indirect
	github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3 // indirect
	github.com/redis/rueidis v1.0.79 // indirect
	go.etcd.io/bbolt v1.5.0 // indirect
	golang.org/x/oauth2 v0.37.0 // indirect
	golang.org/x/time v0.16.0 // indirect
	golang.org/x/sys v0.45.0 // indirect
)
