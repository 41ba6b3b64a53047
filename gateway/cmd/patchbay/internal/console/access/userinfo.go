package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/patchbay-mcp/patchbay/oauth/oidcclient"
)

// maxUserinfo bounds the claims of a user, in bytes: the claims of a user with a thousand groups fit.
const maxUserinfo = 256 << 10

// userinfo returns the claims of the provider about the user of an ID token with a subject.
// Spec: OpenID Connect Core 1.0, section 5.3.
func (i *Identity) userinfo(ctx context.Context, at, token, subject string) (map[string]any, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return nil, errors.New("the metadata contains an invalid userinfo_endpoint")
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := i.client.HTTP.Do(req)
	if err != nil {
		return nil, fmt.Errorf("fetch the userinfo: %w", oidcclient.Bounded(err))
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxUserinfo+1))
	var claims map[string]any
	switch {
	case res.StatusCode != http.StatusOK:
		return nil, &oidcclient.StatusError{Status: res.StatusCode}
	case err != nil || len(text) > maxUserinfo || json.Unmarshal(text, &claims) != nil:
		return nil, fmt.Errorf("the userinfo must be a JSON object of at most %d bytes", maxUserinfo)
	case claims["sub"] != subject: // of another user
		return nil, errors.New("the userinfo contains another sub than the ID token")
	}
	return claims, nil
}
