package conformance_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// A loginUser logs in without a browser. It opens a page, fills in its forms and submits them until
// a page has no further form.
type loginUser struct {
	name, password string
	client         *http.Client
}

func newLoginUser(t *testing.T) *loginUser {
	t.Helper()
	jar := must(cookiejar.New(nil))(t)
	return &loginUser{name: demoUser, password: demoPassword, client: &http.Client{Jar: jar}}
}

// maxPages is the maximum number of pages of a login: our consent and login, those of a provider,
// and the client's.
const maxPages = 10

// visit opens a page, follows the login and returns the text of the last page.
func (p *loginUser) visit(ctx context.Context, page string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return "", err
	}
	for range maxPages {
		text, at, err := p.load(req)
		if err != nil {
			return "", err
		}
		root, err := html.Parse(strings.NewReader(text))
		if err != nil {
			return "", err
		}
		forms := findAll(root, "form")
		if len(forms) == 0 {
			return text, nil
		}
		if req, err = p.submit(ctx, forms[0], at); err != nil {
			return text, err
		}
	}
	return "", fmt.Errorf("more than %d pages", maxPages)
}

func (p *loginUser) load(req *http.Request) (text string, at *url.URL, err error) {
	res, err := p.client.Do(req)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return "", nil, err
	}
	if res.StatusCode >= http.StatusBadRequest {
		return "", nil, fmt.Errorf("%s: %s\n%s", res.Request.URL, res.Status, body)
	}
	return string(body), res.Request.URL, nil
}

// submit fills in a form and submits it.
func (p *loginUser) submit(ctx context.Context, form *html.Node, at *url.URL) (*http.Request, error) {
	values := url.Values{}
	pressed := false
	for _, n := range findAll(form, "input", "button") {
		name, value := attribute(n, "name"), attribute(n, "value")
		button := n.Data == "button" || attribute(n, "type") == "submit"
		switch {
		case button && (pressed || value == "deny"):
			continue
		case button:
			pressed = true
		case name == "username", name == "login":
			value = p.name
		case attribute(n, "type") == "password":
			value = p.password
		case attribute(n, "type") == "checkbox":
			continue
		}
		if name != "" {
			values.Set(name, value)
		}
	}
	target, err := at.Parse(attribute(form, "action"))
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), strings.NewReader(values.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", at.Scheme+"://"+at.Host)
	return req, nil
}

func findAll(n *html.Node, tags ...string) []*html.Node {
	var all []*html.Node
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && slices.Contains(tags, d.Data) {
			all = append(all, d)
		}
	}
	return all
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// authorize visits a page and returns the authorization response that a browser would send to the
// callback.
func (p *loginUser) authorize(ctx context.Context, page, callback string) (url.Values, error) {
	redirect := &callbackRedirect{callback: callback}
	browser := *p.client
	browser.CheckRedirect = redirect.check
	text, err := (&loginUser{p.name, p.password, &browser}).visit(ctx, page)
	if redirect.answer == nil {
		return nil, fmt.Errorf("no redirect to %s: %w\n%s", callback, err, text)
	}
	return redirect.answer, nil
}

// A callbackRedirect stores the authorization response from the redirect to the callback.
type callbackRedirect struct {
	callback string
	answer   url.Values
}

func (c *callbackRedirect) check(req *http.Request, via []*http.Request) error {
	if strings.HasPrefix(req.URL.String(), c.callback) {
		c.answer = req.URL.Query()
		return http.ErrUseLastResponse
	}
	if len(via) == maxPages {
		return fmt.Errorf("more than %d redirects", maxPages)
	}
	return nil
}
