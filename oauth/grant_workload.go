package oauth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// grantJWTBearer is the grant of a JWT that somebody else has signed.
const grantJWTBearer = "urn:ietf:params:oauth:grant-type:jwt-bearer"

// An AssertionFunc gives a JWT that says who a workload is, signed by the platform that it runs on. issuer is the
// authorization server that it is for, which the JWT has to name as its audience. It is called whenever tokens are
// needed, so that it can give a JWT that is fresh. It must be safe for concurrent use.
type AssertionFunc func(ctx context.Context, issuer string) (string, error)

// NewWorkload gives the grant of workload identity federation: the platform that a program runs on, such as a cluster or
// a cloud, vouches for it, and it holds no secret of its own. If TransportOptions.Client names a client, its id is sent,
// and what it authenticates with if it has something. What the authorization server refuses is neither tried again nor
// asked for in another way. A nil assertion panics. The Grant is safe for concurrent use.
//
// Spec: extension io.modelcontextprotocol/auth/wif; RFC 7523, section 2.1.
func NewWorkload(assertion AssertionFunc) Grant {
	if assertion == nil {
		panic("oauth: NewWorkload without an AssertionFunc")
	}
	return workload{assertion}
}

type workload struct{ assertion AssertionFunc }

func (g workload) obtain(ctx context.Context, r *grantRequest) (*TokenSet, error) {
	client := &Registration{Issuer: r.discovery.Server.Issuer, AuthMethod: authNone}
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
	form := scopedForm(grantJWTBearer, r.scopes)
	form.Set("assertion", jwt)
	return r.tokenEndpoint(client).grant(ctx, form)
}

// AssertionFile gives an AssertionFunc that reads the JWT from a file, each time anew: platforms put a fresh one there
// before the old one ends.
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
