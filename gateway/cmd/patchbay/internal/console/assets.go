package console

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"mime"
	"net/http"
	"path"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
)

//go:embed assets
var assetFiles embed.FS

// assetPrefix is the beginning of the paths of assets.
const assetPrefix = "/assets/"

// assets contains the files that pages load. Their paths contain the digest of all of them, so
// browsers keep them until a file changes.
type assets struct {
	digest string
	files  map[string][]byte // by name
}

func readAssets() (*assets, error) {
	entries, err := assetFiles.ReadDir("assets")
	if err != nil {
		return nil, err
	}
	a := &assets{files: map[string][]byte{}}
	sum := sha256.New()
	for _, e := range entries {
		text, err := assetFiles.ReadFile("assets/" + e.Name())
		if err != nil {
			return nil, err
		}
		a.files[e.Name()] = text
		fmt.Fprintf(sum, "%s %d\n%s", e.Name(), len(text), text)
	}
	const digits = 16
	a.digest = hex.EncodeToString(sum.Sum(nil))[:digits]
	return a, nil
}

func (a *assets) url(name string) string { return assetPrefix + a.digest + "/" + name }

// routes returns a route for each file.
func (a *assets) routes() (all []*page.Route) {
	for name, text := range a.files {
		all = append(all, &page.Route{Path: a.url(name), Role: page.RoleAnyone,
			Serve: func(w http.ResponseWriter, _ *page.Request) error {
				w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
				w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
				_, _ = w.Write(text) // an error means that the browser left
				return nil
			}})
	}
	return all
}

// themeCookie stores the choice of light or dark.
const themeCookie = "patchbay-theme"

func (c *Console) themeRoutes() []*page.Route {
	set := func(w http.ResponseWriter, r *page.Request) error {
		const year = 365 * 24 * 60 * 60
		http.SetCookie(w, &http.Cookie{Name: themeCookie, Value: theme(r.PostFormValue("theme")), Path: "/",
			MaxAge: year, HttpOnly: true, SameSite: http.SameSiteStrictMode})
		http.Redirect(w, r.Request, cmp.Or(localReferer(r.Request), c.opts.Home), http.StatusSeeOther)
		return nil
	}
	return []*page.Route{{Path: "/theme", Role: page.RoleViewer, Post: true, Serve: set}}
}

// themeOf returns the theme of a request: "light", "dark" or "" for the theme of the system.
func themeOf(r *http.Request) string {
	cookie, err := r.Cookie(themeCookie)
	if err != nil {
		return ""
	}
	return theme(cookie.Value)
}

func theme(name string) string {
	if name == "light" || name == "dark" {
		return name
	}
	return ""
}
