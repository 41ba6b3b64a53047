package servercard_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/ext/servercard"
)

// with returns a card with one more member.
func with(member string) string { return strings.TrimSuffix(minimal, "}") + "," + member + "}" }

// remote returns a card with an endpoint at a URL.
func remote(url string) string {
	return with(`"remotes":[{"type":"streamable-http","url":` + quote(url) + `}]`)
}

// variable returns a card whose endpoint has a variable.
func variable(name, input string) string {
	return with(`"remotes":[{"type":"sse","url":"https://e.x","variables":{` + quote(name) + `:` + input + `}}]`)
}

// nested returns arrays in arrays.
func nested(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }

// edited returns the minimal card with another text.
func edited(old, replacement string) string { return strings.Replace(minimal, old, replacement, 1) }

func quote(text string) string {
	raw, _ := json.Marshal(text)
	return string(raw)
}

func TestParseAcceptsCardsOfTheSchema(t *testing.T) {
	for name, text := range map[string]string{
		"minimal":         minimal,
		"unknown members": with(`"packages":[],"serverInfo":{"name":"x"}`),
		"a title":         with(`"title":"Weather","websiteUrl":"https://example.com","_meta":{"com.example/x":[1]}`),
		"a repository":    with(`"repository":{"url":"https://github.com/x/y","source":"github","id":"7","subfolder":"a/b"}`),
		"icons":           with(`"icons":[{"src":"data:image/png;base64,AA==","sizes":["any"],"theme":"dark"}]`),
		"an http URL":     remote("http://localhost:8080/mcp"),
		"a variable":      remote("https://{tenant}.example.com/mcp"),
		"a whole URL":     remote("{base}/mcp"),
		"a port":          remote("https://example.com:{port}/mcp"),
		"headers": with(`"remotes":[{"type":"sse","url":"https://example.com/sse",` +
			`"supportedProtocolVersions":["2024-11-05"],"headers":[{"name":"X-Key","isRequired":true,` +
			`"isSecret":true,"value":"k {key}","variables":{"key":{"format":"string"}}}],` +
			`"variables":{"tenant":{"choices":["a","b"],"default":"a"}}}]`),
		"a long description": strings.Replace(minimal, "Forecasts", strings.Repeat("ä", 100), 1),
	} {
		c, err := servercard.Parse([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		encoded, err := json.Marshal(c)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		again, err := servercard.Parse(encoded)
		if err != nil || !cmp.Equal(c, again) {
			t.Errorf("%s: encoded and parsed again: %v %s", name, err, cmp.Diff(c, again))
		}
	}
}

func TestParseRefusesOtherDocuments(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"no JSON":                 {`<html>`, "invalid JSON"},
		"an array":                {`[]`, "must be a JSON object"},
		"data after the card":     {minimal + "{}", "invalid JSON"},
		"a duplicate member":      {with(`"name":"com.example/other"`), "invalid JSON"},
		"deep nesting":            {with(`"_meta":{"com.example/x":` + nested(20) + `}`), "invalid JSON"},
		"no schema":               {edited(schema+",", ""), "invalid $schema"},
		"another schema":          {edited("/v1/", "/v2/"), "invalid $schema"},
		"a schema by date":        {edited("/v1/", "/2025-09-29/"), "invalid $schema"},
		"no name":                 {edited(`"name"`, `"nom"`), "invalid name"},
		"a name without a slash":  {edited("com.example/", ""), "invalid name"},
		"a name with two slashes": {edited("com.example/", "a/b/"), "invalid name"},
		"a name with an escape":   {edited("com.example/", "com.example/\\u001b[2J"), "invalid name"},
		"a long name":             {edited("com.example/", "c/"+strings.Repeat("a", 200)), "invalid name"},
		"a numeric version":       {edited(`"1.0.0"`, `1`), "wrong type"},
		"no version":              {edited(`"1.0.0"`, `""`), "invalid version"},
		"a range":                 {edited(`1.0.0`, `^1.0.0`), "invalid version"},
		"a wildcard":              {edited(`1.0.0`, `1.x`), "invalid version"},
		"a long version":          {edited(`1.0.0`, strings.Repeat("1", 256)), "invalid version"},
		"no description":          {edited(`Forecasts`, ``), "invalid description"},
		"a long description":      {edited(`Forecasts`, strings.Repeat("a", 101)), "invalid description"},
		"a long title":            {with(`"title":` + quote(strings.Repeat("a", 101))), "invalid title"},
		"a script":                {with(`"websiteUrl":"javascript:alert(1)"`), "invalid websiteUrl"},
		"a repository of a file":  {with(`"repository":{"url":"file:///etc/passwd","source":"x"}`), "invalid repository.url"},
		"remotes of an object":    {with(`"remotes":{}`), "wrong type"},
		"many remotes":            {with(`"remotes":[` + strings.Repeat(`{},`, 40) + `{}]`), "invalid remotes"},
		"an unknown transport":    {with(`"remotes":[{"type":"stdio","url":"https://example.com"}]`), "invalid type"},
		"a file URL":              {remote("file:///etc/passwd"), "invalid url"},
		"a URL without a host":    {remote("https:///mcp"), "invalid url"},
		"a URL with an escape":    {remote("https://example.com/\x1b[2J"), "invalid url"},
		"a URL with a space":      {remote("https://example.com/a b"), "invalid url"},
		"credentials":             {remote("https://user:secret@example.com/mcp"), "credentials"},
		"a long URL":              {remote("https://example.com/" + strings.Repeat("a", 3000)), "invalid url"},
		"a broken variable":       {remote("https://{1}.example.com/mcp"), "invalid url"},
		"a header with a newline": {with(`"remotes":[{"type":"sse","url":"https://e.x","headers":[{"name":"X\nY"}]}]`),
			"of a header"},
		"a variable with a dash":   {variable("a-b", `{}`), "of a variable"},
		"an unknown format":        {variable("a", `{"format":"code"}`), "invalid format"},
		"a secret of a wrong type": {variable("a", `{"isSecret":"yes"}`), "wrong type"},
	} {
		c, err := servercard.Parse([]byte(test.text))
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: got %+v, error %v, want an error with %q and without control characters", name, c, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: the error %v contains the credentials", name, err)
		}
	}
}

func TestEndpointsNeedNoVariables(t *testing.T) {
	c, err := servercard.Parse([]byte(with(`"remotes":[{"type":"sse","url":"https://a.example/sse"},` +
		`{"type":"streamable-http","url":"https://{tenant}.example/mcp"},` +
		`{"type":"streamable-http","url":"https://b.example"}]`)))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"https://a.example/sse", "https://b.example"}; !cmp.Equal(c.Endpoints(), want) {
		t.Errorf("got %q, want %q", c.Endpoints(), want)
	}
}

// FuzzParse checks that cards that are accepted keep the limits, and stay equal when encoded.
func FuzzParse(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte(remote("https://{tenant}.example.com:{port}/mcp?x={y}")))
	f.Add([]byte(with(`"remotes":[{"type":"sse","url":"{a}","headers":[{"name":"X","value":"{v}",` +
		`"variables":{"v":{}}}]}]`)))
	f.Add([]byte(with(`"_meta":{"com.example/x":{"a":[1,null,"\u001b"]}},"icons":[{"src":"x"}]`)))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := servercard.Parse(text)
		if err != nil {
			return
		}
		for _, e := range c.Endpoints() {
			if !strings.HasPrefix(strings.ToLower(e), "http") || strings.ContainsAny(e, " \n\x1b{") {
				t.Errorf("the endpoint %q is accepted", e)
			}
		}
		encoded, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		again, err := servercard.Parse(encoded)
		if err != nil {
			t.Fatalf("%s: %v", encoded, err)
		}
		if twice, err := json.Marshal(again); err != nil || string(twice) != string(encoded) {
			t.Errorf("encoded again: %s, %v, want %s", twice, err, encoded)
		}
	})
}
