// Package oauthclient logs an MCP client in to servers that require authorization.
package oauthclient
