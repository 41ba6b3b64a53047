//go:build unix

package main

import "os"

// runRole serves if this process was started as the gateway or as an upstream.
func runRole() (ok bool, err error) {
	if config := os.Getenv(upstreamVariable); config != "" {
		return true, serveUpstream(config)
	}
	if config := os.Getenv(gatewayVariable); config != "" {
		return true, serveGateway(config)
	}
	return false, nil
}
