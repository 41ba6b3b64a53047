package apps_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/apps"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A bare is the screen without a console.
type bare struct {
	t      *testing.T
	site   *page.Site
	screen *page.Screen
	add    func(*apps.Call)
}

func newBare(t *testing.T, o *apps.Options) *bare {
	b := &bare{t: t, site: page.NewSite(nil, slog.New(slog.DiscardHandler))}
	t.Cleanup(b.site.End)
	if o.Origins == nil {
		o.Origins = func(*http.Request) (console, view string) { return "http://127.0.0.1:1", "http://localhost:2" }
	}
	b.screen, _, b.add = apps.New(b.site, o)
	return b
}

func (b *bare) request(path, body string, p *mcp.Principal) (*page.Route, *page.Request) {
	at := slices.IndexFunc(b.screen.Routes, func(o *page.Route) bool { return strings.HasPrefix(path, o.Path+"?") })
	r := httptest.NewRequestWithContext(b.t.Context(), http.MethodPost, path, strings.NewReader(body))
	return b.screen.Routes[at], b.site.Request(r, p, page.RoleOperator)
}

// open opens the app of a run, and returns the location.
func (b *bare) open(run int, p *mcp.Principal) (string, error) {
	o, r := b.request("/apps/open?", "", p)
	r.PostForm = url.Values{"run": {fmt.Sprint(run)}}
	out, err := o.Act(r)
	if err != nil {
		return "", err
	}
	return out.Location, nil
}

// While an app opens, calls of others may remove its call from the list.
func TestAnAppOpensForItsCall(t *testing.T) {
	var b *bare
	var connected []string
	b = newBare(t, &apps.Options{
		Connect: func(_ context.Context, server string, _ *mcp.Principal) (mcp.Transport, error) {
			connected = append(connected, server)
			return nil, errors.New("stop")
		},
		Origins: func(*http.Request) (console, view string) {
			for range 64 {
				b.add(&apps.Call{Run: 2, Server: "other", Principal: &mcp.Principal{Subject: "bob"}})
			}
			return "http://127.0.0.1:1", "http://localhost:2"
		},
	})
	b.add(&apps.Call{Run: 1, Server: "own"})
	_, err := b.open(1, nil)
	if !slices.Equal(connected, []string{"own"}) {
		t.Errorf("connected to %q (%v), want the server of the call", connected, err)
	}
}

// Apps that are being opened count as well, and for their person only.
func TestOpenAppsAreBoundedForEachPerson(t *testing.T) {
	ann, bob := &mcp.Principal{Subject: "ann"}, &mcp.Principal{Subject: "bob"}
	var b *bare
	opened := map[string]int{}
	b = newBare(t, &apps.Options{
		Connect: func(_ context.Context, _ string, p *mcp.Principal) (mcp.Transport, error) {
			opened[p.Subject]++
			if p.Subject == "ann" && opened["ann"] < 20 {
				if _, err := b.open(1, ann); strings.Contains(err.Error(), "are shown already") {
					_, _ = b.open(2, bob)
				}
			}
			return nil, errors.New("stop")
		},
	})
	b.add(&apps.Call{Run: 1, Principal: ann})
	b.add(&apps.Call{Run: 2, Principal: bob})
	_, _ = b.open(1, ann)
	if opened["ann"] != 8 || opened["bob"] != 1 {
		t.Errorf("opened %v at the same time, want 8 of ann and 1 of bob", opened)
	}
	if _, err := b.open(1, ann); err == nil || strings.Contains(err.Error(), "are shown already") {
		t.Errorf("after the attempts have ended: %v", err)
	}
}

const chatter = `{"jsonrpc":"2.0","method":"ui/notifications/chatter"}`

// A page that sends many messages makes the console render at most ten times a second.
func TestMessagesChangePagesRarely(t *testing.T) {
	b := newBare(t, &apps.Options{Connect: connect})
	b.add(&apps.Call{Run: 1, Tool: "time"})
	at, err := b.open(1, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, load, _ := strings.Cut(at, "load=")
	o, r := b.request("/apps/message?load="+load, strings.Repeat(chatter+"\n", 3000), nil)
	began := time.Now()
	stop, counted := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-b.site.Wait():
				n++
			case <-stop:
				counted <- n
				return
			}
		}
	}()
	if err := o.Serve(httptest.NewRecorder(), r); err != nil {
		t.Error(err)
	}
	close(stop)
	if n, most := <-counted, 2+int(time.Since(began)/(100*time.Millisecond)); n > most {
		t.Errorf("the pages changed %d times, want at most %d", n, most)
	}
}

func TestDroppedMessagesAreCounted(t *testing.T) {
	v := newViewer(t, nil)
	v.open()
	v.post(slices.Repeat([]string{chatter}, 3000)...)
	v.Await("/apps?load="+v.load, "messages dropped from the log: ")
}

// The stream of an app ends with the login.
func TestStreamsEndAfterTheLogout(t *testing.T) {
	v := newViewer(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.base+"/apps/stream?load="+v.load, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := v.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if out, text := v.raw("/logout", ""); out.StatusCode != http.StatusSeeOther {
		t.Fatalf("logout: status %d, %s", out.StatusCode, text)
	}
	if text, err := io.ReadAll(res.Body); err != nil {
		t.Errorf("after the logout the stream does not end: %v, got %s", err, text)
	}
}
