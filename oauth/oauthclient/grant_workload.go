package oauthclient

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
)

// grantJWTBearer is the grant of a JWT that somebody else has signed.
const grantJWTBearer = "urn:ietf:params:oauth:grant-type:jwt-bearer"

// An AssertionFunc gives a JWT that says who a workload is, signed by the platform that it runs on. issuer is the
// authorization server that it is for, which the JWT has to name as its audience. It is called whenever tokens are
// needed, so that it can give a JWT that is fresh. It must be safe for concurrent use.
type AssertionFunc func(ctx context.Context, issuer string) (string, error)

// NewWorkloadGrant returns the grant of workload identity federation: the platform that a program runs on, such as a cluster or
// a cloud, vouches for it, and it holds no secret of its own. If TransportOptions.Client names a client, its id is sent,
// and what it authenticates with if it has something. What the authorization server refuses is neither tried again nor
// asked for in another way. A nil assertion panics. The Grant is safe for concurrent use.
//
// The MCP server names the authorization server, which gets the JWT. Therefore the JWT has to name that one's issuer as
// its audience, or else Client.Issuer does: a JWT with an audience that is no issuer goes to the one that is set there
// alone.
//
// Spec: extension io.modelcontextprotocol/auth/wif; RFC 7523, section 2.1.
func NewWorkloadGrant(assertion AssertionFunc) Grant {
	if assertion == nil {
		panic("oauth: NewWorkloadGrant without an AssertionFunc")
	}
	return workload{assertion}
}

type workload struct{ assertion AssertionFunc }

func (g workload) obtain(ctx context.Context, r *grantRequest) (*TokenSet, error) {
	client := &Registration{Issuer: r.discovery.Server.Issuer, AuthMethod: oauthwire.AuthNone}
	if r.transport.client.ID != "" {
		var err error
		if client, err = r.configured(ctx); err != nil {
			return nil, err
		}
	}
	jwt, err := g.assertion(ctx, r.discovery.Server.Issuer)
	if err != nil {
		return nil, fmt.Errorf("oauth: get the assertion of the workload: %w", err)
	}
	if !isSendable(jwt) {
		return nil, errors.New("oauth: the assertion of the workload is no JWT")
	}
	if r.transport.client.Issuer == "" && !slices.Contains(audienceOf(jwt), r.discovery.Server.Issuer) {
		return nil, fmt.Errorf("oauth: the assertion of the workload is not for the authorization server %s, which the MCP server "+
			"names: set TransportOptions.Client.Issuer if it is to go there nevertheless", r.discovery.Server.Issuer)
	}
	form := scopedForm(grantJWTBearer, r.scopes)
	form.Set("assertion", jwt)
	return r.tokenEndpoint(client).grant(ctx, form)
}

// audienceOf returns the audience that a JWT names, which somebody else verifies. The token endpoint is no substitute for the
// issuer in it: the metadata of any authorization server can name that of another one.
func audienceOf(jwt string) []string {
	const three = 3 // header, claims, signature
	parts := strings.SplitN(jwt, ".", three+1)
	if len(parts) != three {
		return nil
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil
	}
	var claims struct {
		Audience jsontext.Value `json:"aud"` // a string or several
	}
	if err := oauthfetch.Decode(text, &claims); err != nil {
		return nil
	}
	return oauthwire.Strings(claims.Audience)
}

// AssertionFile returns an AssertionFunc that reads the JWT from a file, each time anew: platforms put a fresh one there
// before the old one ends. It is one JWT for all authorization servers: [NewWorkloadGrant] says to which it goes.
func AssertionFile(path string) AssertionFunc {
	return func(context.Context, string) (string, error) {
		file, err := os.Open(path)
		if err != nil {
			return "", err
		}
		defer file.Close()
		// One more is enough to see that it is too long.
		text, err := io.ReadAll(io.LimitReader(file, maxTokenSize+1))
		if err != nil {
			return "", err
		}
		return strings.TrimSpace(string(text)), nil
	}
}
