package uritemplate_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/uritemplate"
)

// rfcVars are the variables of the examples in RFC 6570, section 3.2.
var rfcVars = map[string]any{
	"count": []string{"one", "two", "three"}, "dom": []string{"example", "com"}, "dub": "me/too",
	"hello": "Hello World!",
	"half":  "50%", "var": "value", "who": "fred", "base": "http://example.com/home/", "path": "/foo/bar",
	"list": []string{"red", "green", "blue"}, "keys": map[string]string{"semi": ";", "dot": ".", "comma": ","},
	"v": "6", "x": "1024", "y": "768", "empty": "", "empty_keys": map[string]string{}, "undef": nil,
}

// rfcExamples are its expansions. Pairs are in the order of their keys, which the RFC does not
// define.
var rfcExamples = []struct{ template, uri string }{
	// 3.2.1 variables
	{"{count}", "one,two,three"}, {"{count*}", "one,two,three"}, {"{/count}", "/one,two,three"},
	{"{/count*}", "/one/two/three"}, {"{;count}", ";count=one,two,three"},
	{"{;count*}", ";count=one;count=two;count=three"},
	{"{?count}", "?count=one,two,three"}, {"{?count*}", "?count=one&count=two&count=three"},
	{"{&count*}", "&count=one&count=two&count=three"},
	// 3.2.2 simple
	{"{var}", "value"}, {"{hello}", "Hello%20World%21"}, {"{half}", "50%25"}, {"O{empty}X", "OX"}, {"O{undef}X", "OX"},
	{"{x,y}", "1024,768"}, {"{x,hello,y}", "1024,Hello%20World%21,768"}, {"?{x,empty}", "?1024,"},
	{"?{x,undef}", "?1024"},
	{"?{undef,y}", "?768"}, {"{var:3}", "val"}, {"{var:30}", "value"}, {"{list}", "red,green,blue"},
	{"{list*}", "red,green,blue"},
	{"{keys}", "comma,%2C,dot,.,semi,%3B"}, {"{keys*}", "comma=%2C,dot=.,semi=%3B"},
	// 3.2.3 reserved
	{"{+var}", "value"}, {"{+hello}", "Hello%20World!"}, {"{+half}", "50%25"},
	{"{base}index", "http%3A%2F%2Fexample.com%2Fhome%2Findex"},
	{"{+base}index", "http://example.com/home/index"}, {"O{+empty}X", "OX"}, {"O{+undef}X", "OX"},
	{"{+path}/here", "/foo/bar/here"},
	{"here?ref={+path}", "here?ref=/foo/bar"}, {"up{+path}{var}/here", "up/foo/barvalue/here"},
	{"{+x,hello,y}", "1024,Hello%20World!,768"},
	{"{+path,x}/here", "/foo/bar,1024/here"}, {"{+path:6}/here", "/foo/b/here"}, {"{+list}", "red,green,blue"},
	{"{+list*}", "red,green,blue"}, {"{+keys}", "comma,,,dot,.,semi,;"}, {"{+keys*}", "comma=,,dot=.,semi=;"},
	// 3.2.4 fragment
	{"{#var}", "#value"}, {"{#hello}", "#Hello%20World!"}, {"{#half}", "#50%25"}, {"foo{#empty}", "foo#"},
	{"foo{#undef}", "foo"},
	{"{#x,hello,y}", "#1024,Hello%20World!,768"}, {"{#path,x}/here", "#/foo/bar,1024/here"},
	{"{#path:6}/here", "#/foo/b/here"},
	{"{#list}", "#red,green,blue"}, {"{#keys*}", "#comma=,,dot=.,semi=;"},
	// 3.2.5 labels
	{"{.who}", ".fred"}, {"{.who,who}", ".fred.fred"}, {"{.half,who}", ".50%25.fred"},
	{"www{.dom*}", "www.example.com"},
	{"X{.var}", "X.value"}, {"X{.empty}", "X."}, {"X{.undef}", "X"}, {"X{.var:3}", "X.val"},
	{"X{.list}", "X.red,green,blue"},
	{"X{.list*}", "X.red.green.blue"}, {"X{.keys}", "X.comma,%2C,dot,.,semi,%3B"},
	{"X{.keys*}", "X.comma=%2C.dot=..semi=%3B"},
	{"X{.empty_keys}", "X"}, {"X{.empty_keys*}", "X"},
	// 3.2.6 path segments
	{"{/who}", "/fred"}, {"{/who,who}", "/fred/fred"}, {"{/half,who}", "/50%25/fred"}, {"{/who,dub}", "/fred/me%2Ftoo"},
	{"{/var}", "/value"}, {"{/var,empty}", "/value/"}, {"{/var,undef}", "/value"},
	{"{/var,x}/here", "/value/1024/here"},
	{"{/var:1,var}", "/v/value"}, {"{/list}", "/red,green,blue"}, {"{/list*}", "/red/green/blue"},
	{"{/list*,path:4}", "/red/green/blue/%2Ffoo"}, {"{/keys}", "/comma,%2C,dot,.,semi,%3B"},
	{"{/keys*}", "/comma=%2C/dot=./semi=%3B"},
	// 3.2.7 path parameters
	{"{;who}", ";who=fred"}, {"{;half}", ";half=50%25"}, {"{;empty}", ";empty"},
	{"{;v,empty,who}", ";v=6;empty;who=fred"},
	{"{;v,bar,who}", ";v=6;who=fred"}, {"{;x,y}", ";x=1024;y=768"}, {"{;x,y,empty}", ";x=1024;y=768;empty"},
	{"{;x,y,undef}", ";x=1024;y=768"}, {"{;hello:5}", ";hello=Hello"}, {"{;list}", ";list=red,green,blue"},
	{"{;list*}", ";list=red;list=green;list=blue"}, {"{;keys}", ";keys=comma,%2C,dot,.,semi,%3B"},
	{"{;keys*}", ";comma=%2C;dot=.;semi=%3B"},
	// 3.2.8 and 3.2.9 queries
	{"{?who}", "?who=fred"}, {"{?half}", "?half=50%25"}, {"{?x,y}", "?x=1024&y=768"},
	{"{?x,y,empty}", "?x=1024&y=768&empty="},
	{"{?x,y,undef}", "?x=1024&y=768"}, {"{?var:3}", "?var=val"}, {"{?list}", "?list=red,green,blue"},
	{"{?list*}", "?list=red&list=green&list=blue"}, {"{?keys}", "?keys=comma,%2C,dot,.,semi,%3B"},
	{"{?keys*}", "?comma=%2C&dot=.&semi=%3B"},
	{"?fixed=yes{&x}", "?fixed=yes&x=1024"}, {"{&x,y,empty}", "&x=1024&y=768&empty="},
	{"{&list*}", "&list=red&list=green&list=blue"},
	// beyond the examples: text outside ASCII is UTF-8, percent-encoded, in literals too
	{"é{who}", "%C3%A9fred"}, {"it's-{who}", "it's-fred"},
}

// expand parses and expands a template.
func expand(template string, vars map[string]any) (string, error) {
	t, err := uritemplate.Parse(template)
	if err != nil {
		return "", err
	}
	return t.Expand(vars)
}

// match parses a template and matches a URI. The variables in lists are lists.
func match(template, uri string, lists ...string) (map[string]any, bool, error) {
	t, err := uritemplate.Parse(template)
	if err != nil {
		return nil, false, err
	}
	isList := map[string]bool{}
	for _, name := range lists {
		isList[name] = true
	}
	m, err := t.Matcher(isList)
	if err != nil {
		return nil, false, err
	}
	vars, ok := m.Match(uri)
	return vars, ok, nil
}

// variables returns the variables of a template, or nil if it is malformed.
func variables(template string) []string {
	t, err := uritemplate.Parse(template)
	if err != nil {
		return nil
	}
	return t.Variables()
}

// Requirement: RES-04
func TestTemplatesExpandByRFC6570(t *testing.T) {
	for _, e := range rfcExamples {
		got, err := expand(e.template, rfcVars)
		if err != nil || got != e.uri {
			t.Errorf("%s: got %q, %v, want %q", e.template, got, err, e.uri)
		}
	}
}

// TestMatchInvertsExpand matches every example of the RFC whose expansion can be inverted.
//
// Requirement: RES-04
func TestMatchInvertsExpand(t *testing.T) {
	for _, e := range rfcExamples {
		var lists []string
		skip := strings.Contains(e.template, ",who}") ||
			strings.Contains(e.template, ":1,var}") // a variable occurs twice in one expression
		for _, name := range variables(e.template) {
			switch rfcVars[name].(type) {
			case []string:
				lists = append(lists, name)
			case map[string]string:
				skip = true // the keys are not known in advance
			}
		}
		if skip {
			continue
		}
		vars, ok, err := match(e.template, e.uri, lists...)
		if err != nil || !ok {
			t.Errorf("%s does not match %q: %v", e.template, e.uri, err)
			continue
		}
		again, err := expand(e.template, vars)
		if err != nil || again != e.uri {
			t.Errorf("%s matches %q with %v, which expand to %q, %v", e.template, e.uri, vars, again, err)
		}
	}
}

// Requirement: RES-04
func TestMatchReturnsTheVariables(t *testing.T) {
	type vars = map[string]any
	list := func(items ...string) []string { return items }
	for _, test := range []struct {
		template, uri string
		want          vars // nil: no match
	}{
		{"x://{a}", "x://b", vars{"a": "b"}},
		{"x://{a}", "x://", vars{}},
		{"x://{a}", "x://b/c", nil},
		{"x://{a}", "x://b%2Fc", vars{"a": "b/c"}},
		{"x://{a}", "x://%e2%82%ac", vars{"a": "€"}},
		{"x://{a}", "x://%FF", nil},
		{"x://{a}", "x://%zz", nil},
		{"x://{a}", "x://%4", nil},
		{"x://{a}", "y://b", nil},
		{"x://{a}", "ax://b", nil},
		{"x://{a}", "x://b\n", nil},
		{"x://{a}/z", "x://b/z/z", nil},
		{"x://{+a}/z", "x://b/z/z", vars{"a": "b/z"}},
		{"x://{a,b}", "x://1,2", vars{"a": "1", "b": "2"}},
		{"x://{a,b}", "x://1", vars{"a": "1"}},
		{"x://{a,b}", "x://1,2,3", nil},
		{"x://{+a}{?q}", "x://b/c?q=1", vars{"a": "b/c", "q": "1"}},
		{"x://{+a}{?q}", "x://b/c", vars{"a": "b/c"}},
		{"x://{+a}.{b}", "x://c/d.e.f", vars{"a": "c/d.e", "b": "f"}},
		{"x://{a}{.b}", "x://n.md", vars{"a": "n", "b": "md"}},
		{"x://h{/list*}", "x://h/a/b", vars{"list": list("a", "b")}},
		{"x://h{/list*}", "x://h", vars{}},
		{"x://h{/list*}{?q}", "x://h/a/b?q=c", vars{"list": list("a", "b"), "q": "c"}},
		{"x://h{/list}", "x://h/a,b%2Cc", vars{"list": list("a", "b,c")}},
		{"x://h{?a,b}", "x://h?a=1&b=2", vars{"a": "1", "b": "2"}},
		{"x://h{?a,b}", "x://h?b=2&a=1", vars{"a": "1", "b": "2"}},
		{"x://h{?a,b}", "x://h?b=2", vars{"b": "2"}},
		{"x://h{?a,b}", "x://h?a=", vars{"a": ""}},
		{"x://h{?a,b}", "x://h?a=1&a=2", nil},
		{"x://h{?a,b}", "x://h?a=1b=2", vars{"a": "1b=2"}},
		{"x://h{?a,b}", "x://h?c=1", nil},
		{"x://h{?a,b}", "x://h?", nil},
		{"x://h{?list*}", "x://h?list=1&list=2", vars{"list": list("1", "2")}},
		{"x://h{?a}{&b}", "x://h?a=1&b=2", vars{"a": "1", "b": "2"}},
		{"x://h{;a}{;b}", "x://h;a=1;b=2", vars{"a": "1", "b": "2"}},
		{"x://h{#a}", "x://h#b/c?d", vars{"a": "b/c?d"}},
		{"x://{a:1}/{a}", "x://f/fred", vars{"a": "fred"}},
		{"x://{a:1}/{a}", "x://g/fred", nil},
		{"x://{a:1}/{a:3}", "x://f/fre", vars{"a": "fre"}},
		{"x://{a:2}", "x://%C3%A9%C3%A9", vars{"a": "éé"}},
		{"x://{a:2}", "x://abc", nil},
		{"x://{a}/{a}", "x://b/b", vars{"a": "b"}},
		{"x://{a}/{a}", "x://b/c", nil},
		{"x://é/{a}", "x://%C3%A9/b", vars{"a": "b"}},
		// unencoded characters
		{"x://{a}", "x://bob@example.com", vars{"a": "bob@example.com"}},
		{"x://{a}", "x://it's,fine", vars{"a": "it's,fine"}},
		{"x://h{?a}", "x://h?a=b/c?d,e", vars{"a": "b/c?d,e"}},
		{"x://{a}:{b}", "x://c:d", vars{"a": "c", "b": "d"}},
		{"x://h{?a}{;b}", "x://h?a=1;b=2", vars{"a": "1", "b": "2"}},
	} {
		var lists []string
		if strings.Contains(test.template, "list") {
			lists = append(lists, "list")
		}
		got, ok, err := match(test.template, test.uri, lists...)
		if err != nil {
			t.Errorf("%s: %v", test.template, err)
			continue
		}
		if ok != (test.want != nil) || ok && !cmp.Equal(got, test.want) {
			t.Errorf("%s matched with %q: got %v, %v, want %v", test.template, test.uri, got, ok, test.want)
		}
	}
}

// Requirement: RES-04
func TestMalformedTemplatesAreErrors(t *testing.T) {
	for _, bad := range []string{
		"{", "}", "a}", "{}", "{a", "{a{b}}", "{=a}", "{,a}", "{!a}", "{@a}", "{|a}", "{+}", "{a,}", "{,}", "{a:}",
		"{a:0}",
		"{a:10000}", "{a:3*}", "{a**}", "{a b}", "{a-b}", "{.a..b}", "{..a}", "{a.}", "{%4}", "a b", "a\"b", "a<b",
		"a\\b", "a^b",
		"a`b", "a|b", "a%b", "a%4", "\x00", "\x7f", "\xff", strings.Repeat("a", 8<<10+1),
	} {
		if uri, err := expand(bad, nil); err == nil {
			t.Errorf("%q expands to %q, want an error", bad, uri)
		}
	}
	for _, bad := range []string{"{a*}", "{?a,a}", "{" + strings.Repeat("a,", 4000) + "b}"} {
		if _, _, err := match(bad, ""); err == nil {
			t.Errorf("%.20q: Matcher returned no error, want one", bad)
		}
	}
}

// Requirement: RES-04
func TestInvalidValuesAreErrors(t *testing.T) {
	for template, vars := range map[string]map[string]any{
		"{a}":   {"a": 5},
		"{b}":   {"b": "\xff"},
		"{c:3}": {"c": []string{"x"}},
		"{d:3}": {"d": map[string]string{"x": "y"}},
		"{e*}":  {"e": map[string]string{"x": "\xff"}},
		"{f*}":  {"f": map[string]string{"\xff": "x"}},
		"{g}":   {"g": []string{"\xff"}},

		strings.Repeat("{h}", 1000): {"h": strings.Repeat("x", 100)}, // the expansion is too long
	} {
		if uri, err := expand(template, vars); err == nil {
			t.Errorf("%s with an invalid value expands to %q, want an error", template, uri)
		}
	}
}

// Requirement: RES-16
func TestCheckURIAcceptsAbsoluteURIs(t *testing.T) {
	for uri, valid := range map[string]bool{
		"file:///a/b.txt": true, "x:y": true, "a+b-c.d:": true, "x://h/%C3%A9?q=(1)#f": true, "test://[::1]/a": true,
		"": false, "a": false, ":a": false, "1x:a": false, "a/b:c": false, "x://a b": false, "x://é": false,
		"x://%4g": false, "x://%": false,
		"x://a\\b": false, "x://a\x00": false, "x://{a}": false, "x:" + strings.Repeat("a", 8<<10): false,
	} {
		if err := uritemplate.CheckURI(uri); (err == nil) != valid {
			t.Errorf("CheckURI(%.40q): error %v, want valid: %t", uri, err, valid)
		}
	}
}

// TestMatchingTakesLinearTime matches hostile URIs of the maximum length. A backtracking
// matcher would not return. The limit allows for the race detector on a busy machine.
//
// Requirement: RES-18
func TestMatchingTakesLinearTime(t *testing.T) {
	const size, limit = 8 << 10, 30 * time.Second
	for template, piece := range map[string]string{
		"x://{a}": "%41", "x://{list}!": "a,", "x://h{/list*}!": "/a", "x://h{?list*}!": "&list=a",
		"x://{a,b,c,d,e,f,g,h}!": "a,", "x://{+a}{+b}{+c}{+d}{+e}!": "a", "x://{+a}/{+b}/{+c}/{+d}!": "/",
		"x://{.a,b,c,d}!": ".", "x://h{?a,b,c}{&d,e}!": "&a",
		"x://{a}{.b}{.c}{.d}{/e}{;f}!": ".a", "x://{#a,b,c,d,e}!": ",a,",
	} {
		prefix := template[:strings.Index(template, "{")]
		if strings.Contains(template, "{?") {
			prefix += "?a"
		}
		uri := (prefix + strings.Repeat(piece, size))[:size]
		start := time.Now()
		if _, ok, err := match(template, uri, "list"); ok || err != nil {
			if err != nil || strings.HasSuffix(template, "!") {
				t.Errorf("%s: matched: %v, error %v, want no match", template, ok, err)
			}
		}
		took := time.Since(start)
		t.Logf("%-40s %v", template, took)
		if took > limit {
			t.Errorf("%s: %d bytes took %v, want at most %v", template, size, took, limit)
		}
	}
}

// FuzzURITemplate expands any template with any values. The result contains only characters of a
// URI, and matching it returns the same values or others with the same expansion.
func FuzzURITemplate(f *testing.F) {
	for _, e := range rfcExamples {
		f.Add(e.template, "value", "Hello World!", "red", "green")
	}
	f.Add("x://{+a}{?b}", "é/€/😀", "\x00%", "", ",")
	f.Add("{a}{b}{;a,b}{c*}", "a", "b", "", "")
	f.Fuzz(func(t *testing.T, template, a, b, item1, item2 string) {
		names := variables(template)
		vars := map[string]any{}
		var lists []string
		for i, name := range names {
			switch {
			case strings.Contains(template, name+"*"), i%4 == 3:
				vars[name] = []string{item1, item2}
				lists = append(lists, name)
			case i%3 == 2:
			case i%2 == 1:
				vars[name] = b
			default:
				vars[name] = a
			}
		}
		uri, err := expand(template, vars)
		if err != nil || len(uri) > 8<<10 {
			return
		}
		if err := uritemplate.CheckURI("x:" + uri); err != nil && len(uri) < 8<<10-2 {
			t.Fatalf("%q expands to %q: %v", template, uri, err)
		}
		found, ok, err := match(template, uri, lists...)
		if err != nil || ambiguous(template, names) || strings.Contains(a+b+item1+item2, "%") {
			return
		}
		if !ok {
			t.Fatalf("%q with %q expands to %q, which it does not match", template, vars, uri)
		}
		again, err := expand(template, found)
		if err != nil || again != uri {
			t.Fatalf("%q matches %q with %q, which expand to %q, %v", template, uri, found, again, err)
		}
	})
}

// ambiguous reports whether an expansion of the template may not match it: a variable occurs twice
// or has a prefix, literals are percent-encoded, or the values of one expression contain delimiters
// of another.
func ambiguous(template string, names []string) bool {
	for _, name := range names {
		if strings.Count(template, name) > 1 {
			return true
		}
	}
	reserved := strings.Contains(template, "{+") || strings.Contains(template, "{#")
	return strings.ContainsAny(template, "%:") || reserved && strings.Count(template, "{") > 1
}

// FuzzURITemplateRoundTrip has unambiguous templates: matching an expansion returns its values.
func FuzzURITemplateRoundTrip(f *testing.F) {
	templates := []string{
		"x://{a}/{b}{/list*}", "x://{a}{/b}{?list}", "x://{a,b}/{list}", "x://h{?a,b,list*}", "x://h{;a,b}{?list*}",
		"x://{a}{?b}{&list*}", "x://{a}/{b:9999}{#list}", "x://{a:3}/{a}/{b}{/list}", "x://{b}{/list*,a}",
	}
	for i := range templates {
		f.Add(uint8(i), "value", "Hello World!", "red", "green")
		f.Add(uint8(i), "é/€/😀", "\x00%41", ",", "..")
	}
	f.Fuzz(func(t *testing.T, which uint8, a, b, item1, item2 string) {
		template := templates[int(which)%len(templates)]
		if a == "" || b == "" || item1 == "" || item2 == "" {
			return // indistinguishable from undefined
		}
		vars := map[string]any{"a": a, "b": b, "list": []string{item1, item2}}
		if strings.Contains(template, "#list") && strings.ContainsAny(item1+item2, ",%") {
			return // a fragment leaves commas and triplets as they are
		}
		uri, err := expand(template, vars)
		if err != nil || len(uri) > 8<<10 {
			return
		}
		found, ok, err := match(template, uri, "list")
		if err != nil || !ok || !cmp.Equal(found, vars) {
			t.Fatalf("%q with %q expands to %q, which matches with %q, %v, %v", template, vars, uri, found, ok, err)
		}
	})
}

// FuzzURIMatch matches any URI against any template: the values are text, and belong to variables
// of the template.
func FuzzURIMatch(f *testing.F) {
	for _, e := range rfcExamples {
		f.Add(e.template, e.uri)
	}
	f.Fuzz(func(t *testing.T, template, uri string) {
		if len(template) > 200 {
			return
		}
		found, ok, err := match(template, uri)
		if err != nil || !ok {
			return
		}
		names := variables(template)
		for name := range maps.Keys(found) {
			if !slices.Contains(names, name) {
				t.Fatalf("%q matches %q with an unknown variable %q", template, uri, name)
			}
		}
		if len(uri)*len("%24")*strings.Count(strings.ReplaceAll(template, "{", ","), ",") > 8<<10 {
			return // the expansion may be too long once everything is encoded
		}
		if _, err := expand(template, found); err != nil {
			t.Fatalf("%q matches %q with %q, which do not expand: %v", template, uri, found, err)
		}
	})
}
