package cmdutil

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/gateway/internal/private"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// AddNoAuthFlag adds the flag that serves HTTP without a key.
func AddNoAuthFlag(cmd *cobra.Command, noAuth *bool) {
	cmd.Flags().BoolVar(noAuth, "insecure-no-auth", false,
		"serve HTTP without a key, on a loopback address: every program of this machine, of any user, can use it")
}

// HTTPKey returns the key that clients must send over HTTP, or "" if noAuth is set.
func HTTPKey(f *Factory, noAuth bool) string {
	if noAuth {
		return ""
	}
	key, err := localKey()
	if err != nil {
		f.IO.Err.Printf("patchbay: the key is for this run only: %s", term.CleanLine(err.Error()))
		return gateway.NewKey()
	}
	return key
}

// localKey returns the key of the user, which is the same for all servers so that configurations of clients stay
// valid. The first call creates it.
func localKey() (string, error) {
	dir, err := userdir.Dir("serve")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "key")
	key, err := readLocalKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	f, err := os.CreateTemp(dir, "key-*") // of mode 0600
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(gateway.NewKey())
	if err = errors.Join(err, f.Close()); err == nil {
		if err = os.Link(f.Name(), path); errors.Is(err, fs.ErrExist) {
			err = nil // another process was faster
		}
	}
	if err = errors.Join(err, os.Remove(f.Name())); err != nil {
		return "", err
	}
	return readLocalKey(path)
}

func readLocalKey(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if err := private.CheckOwner(path, info); err != nil {
		return "", err
	}
	b, err := os.ReadFile(path)
	if err == nil && (!info.Mode().IsRegular() || len(b) != len(gateway.NewKey())) {
		err = fmt.Errorf("%s is not a key: remove it", path)
	}
	return string(b), err
}

// RequireKey returns middleware that refuses requests without the key, and removes the key from other requests. If
// the key is empty, it passes on all requests.
func RequireKey(key string) func(http.Handler) http.Handler {
	want := sha256.Sum256([]byte("Bearer " + key))
	return func(next http.Handler) http.Handler {
		if key == "" {
			return next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got := sha256.Sum256([]byte(strings.Join(r.Header["Authorization"], ",")))
			if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
				w.Header().Set("WWW-Authenticate", "Bearer")
				http.Error(w, "missing or wrong key: the header must be \"Authorization: Bearer KEY\", with the key "+
					"that the server has printed", http.StatusUnauthorized)
				return
			}
			r = r.Clone(r.Context())
			r.Header.Del("Authorization")
			next.ServeHTTP(w, r)
		})
	}
}

// localUser is the principal of all clients that share a connection to a server, because they send
// the key of the same user. With several principals, questions and messages without a request would
// not reach any client.
var localUser = &mcp.Principal{Subject: "local"}

// asLocalUser is middleware that serves every request with the principal localUser.
func asLocalUser(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(mcp.WithPrincipal(r.Context(), localUser)))
	})
}

// KeyHeaders returns the headers for the configuration of a client.
func KeyHeaders(key string) map[string]string {
	if key == "" {
		return nil
	}
	return map[string]string{"Authorization": "Bearer " + key}
}

// KeyFlag returns the flag that makes this program send the key, with a space before it.
func KeyFlag(key string) string {
	if key == "" {
		return ""
	}
	return ` --header "Authorization: Bearer ` + key + `"`
}
