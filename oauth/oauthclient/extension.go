package oauthclient

import (
	"encoding/json"
	"maps"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Identifiers of the authorization extensions, for [mcp.ClientOptions].Extensions.
const (
	// ExtensionClientCredentials is that of [NewClientCredentialsGrant].
	ExtensionClientCredentials = "io.modelcontextprotocol/oauth-client-credentials"
	// ExtensionEnterprise is that of [NewEnterpriseGrant].
	ExtensionEnterprise = "io.modelcontextprotocol/enterprise-managed-authorization"
)

// Declare returns client options that declare the extension of a grant, if it has one. opts may be
// nil and is not changed.
//
// Spec: extensions io.modelcontextprotocol/oauth-client-credentials and
// io.modelcontextprotocol/enterprise-managed-authorization, Capabilities.
func Declare(opts *mcp.ClientOptions, grant Grant) *mcp.ClientOptions {
	var declared mcp.ClientOptions
	if opts != nil {
		declared = *opts
	}
	id := ""
	switch grant.(type) {
	case clientCredentials:
		id = ExtensionClientCredentials
	case *enterprise:
		id = ExtensionEnterprise
	default:
		return &declared
	}
	declared.Extensions = maps.Clone(declared.Extensions)
	if declared.Extensions == nil {
		declared.Extensions = map[string]json.RawMessage{}
	}
	if _, ok := declared.Extensions[id]; !ok {
		declared.Extensions[id] = json.RawMessage(`{}`)
	}
	return &declared
}
