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

const grantJWTBearer = "urn:ietf:params:oauth:grant-type:jwt-bearer"

// An AssertionFunc returns a JWT that identifies a workload, signed by its platform. issuer is the
// authorization server, which the JWT must name as its audience. It is called whenever tokens are
// needed, so that it can return a fresh JWT, and must be safe for concurrent use.
type AssertionFunc func(ctx context.Context, issuer string) (string, error)

// NewWorkloadGrant returns the grant of workload identity federation: the platform of a program,
// such as a cluster or a cloud, vouches for it, and the program holds no secret of its own. If
// TransportOptions.Client names a client, its id is sent, and it authenticates if it holds a secret
// or a key. A refusal is not retried. A nil assertion panics. The Grant is safe for concurrent use.
//
// The MCP server names the authorization server that gets the JWT. Therefore the JWT must carry
// that issuer as its audience. A JWT with another audience is only sent to
// TransportOptions.Client.Issuer.
//
// Spec: extension io.modelcontextprotocol/auth/wif; RFC 7523, section 2.1.
func NewWorkloadGrant(assertion AssertionFunc) Grant {
	if assertion == nil {
		panic("oauth: NewWorkloadGrant without an AssertionFunc")
	}
	return workload{assertion}
}

type workload struct{ assertion AssertionFunc }

func (workload) extension() string { return "" } // the specification defines no id for it

func (g workload) obtain(ctx context.Context, r *grantRequest) (*TokenSet, error) {
	client := &Registration{Issuer: r.discovery.Server.Issuer, AuthMethod: oauthwire.AuthNone}
	if r.transport.client.ID != "" {
		var err error
		if client, err = r.transport.configured(r.discovery); err != nil {
			return nil, err
		}
	}
	jwt, err := g.assertion(ctx, r.discovery.Server.Issuer)
	if err != nil {
		return nil, fmt.Errorf("oauth: AssertionFunc: %w", err)
	}
	if !isSendable(jwt) {
		return nil, errors.New("oauth: AssertionFunc: invalid assertion: must be a JWT")
	}
	if r.transport.client.Issuer == "" && !slices.Contains(audienceOf(jwt), r.discovery.Server.Issuer) {
		return nil, fmt.Errorf("oauth: the audience of the workload's assertion is not the authorization server %s, "+
			"which the MCP server names: configure it as the issuer of the client to send it there anyway",
			r.discovery.Server.Issuer)
	}
	form := scopedForm(grantJWTBearer, r.scopes)
	form.Set("assertion", jwt)
	return r.tokenEndpoint(client).grant(ctx, form)
}

// audienceOf returns the audience of a JWT without verifying it. The token endpoint does not count
// as audience: the metadata of any authorization server can name the audience of another server.
func audienceOf(jwt string) []string {
	parts := strings.Split(jwt, ".")
	if len(parts) != 3 { // header, claims, signature
		return nil
	}
	var claims struct {
		Audience jsontext.Value `json:"aud"` // a string or an array
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || oauthfetch.Decode(text, &claims) != nil {
		return nil
	}
	return oauthwire.Strings(claims.Audience)
}

// AssertionFile returns an AssertionFunc that reads the JWT from a file each time: platforms
// replace it before it expires. The same JWT is for all authorization servers; [NewWorkloadGrant]
// decides which servers get it.
func AssertionFile(path string) AssertionFunc {
	return func(context.Context, string) (string, error) {
		file, err := os.Open(path)
		if err != nil {
			return "", err
		}
		defer file.Close()
		// A further byte shows that the file is too long.
		text, err := io.ReadAll(io.LimitReader(file, maxTokenSize+1))
		if err != nil {
			return "", err
		}
		return strings.TrimSpace(string(text)), nil
	}
}
