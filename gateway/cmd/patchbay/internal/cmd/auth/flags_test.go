package auth

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/login"
)

func TestAuthFlags(t *testing.T) {
	cmdtest.Check(t, NewCmdLogin, map[string]*LoginOptions{
		"login http://127.0.0.1:1/mcp --scope a --scope b --no-browser --client-secret-file - --client-id c --issuer http://127.0.0.1:2": {
			Settings:   login.Settings{Scopes: []string{"a", "b"}, ClientID: "c", Issuer: "http://127.0.0.1:2"},
			SecretFile: "-", NoBrowser: true},
		"login http://127.0.0.1:1/mcp --insecure-unlisted-pkce --omit-resource --client-metadata-url http://127.0.0.1:3": {
			Settings: login.Settings{InsecureUnlistedPKCE: true, OmitResource: true, MetadataURL: "http://127.0.0.1:3"}},
		"login":           nil,
		"login -- server": nil, // commands have no login
	})
	cmdtest.Check(t, NewCmdToken, map[string]*TokenOptions{"token http://127.0.0.1:1/mcp --show": {Show: true}, "token http://127.0.0.1:1/mcp": {}})
	cmdtest.Check(t, NewCmdKey, map[string]*KeyOptions{"key": {}, "key file": {Location: "file"}, "key here": nil})
}
