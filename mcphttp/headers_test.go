package mcphttp_test

import (
	"math/big"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// Requirement: HDR-08
func TestNameHeaderEqualsTheBody(t *testing.T) {
	f := start(t, newTestCore(), nil)
	for _, test := range []struct {
		name, method, params, header string
		ok                           bool
	}{
		{"tool", "tools/call", `"name":"echo"`, "echo", true},
		{"prompt", "prompts/get", `"name":"p"`, "p", true},
		{"resource", "resources/read", `"uri":"file:///a%20b"`, "file:///a%20b", true},
		{"name with an escape in the body", "tools/call", `"name":"\u0065cho"`, "echo", true},
		{"encoded", "tools/call", `"name":"echo"`, "=?base64?ZWNobw==?=", true}, // Requirement: HDR-10
		{"not ASCII", "tools/call", `"name":"日本"`, "=?base64?5pel5pys?=", true}, // Requirement: HDR-06
		{"missing", "tools/call", `"name":"echo"`, "-", false},                  // Requirement: HDR-09
		{"another name", "tools/call", `"name":"echo"`, "other", false},         // Requirement: HDR-08
		{"name in another case", "tools/call", `"name":"echo"`, "Echo", false},  // Requirement: HDR-07
		{"no name in the body", "tools/call", ``, "echo", false},                // Requirement: HDR-08
		{"not a string", "tools/call", `"name":1`, "1", false},                  // Requirement: HDR-08
		{"escape in the header", "tools/call", `"name":"\u0065cho"`, `\u0065cho`, false},
		{"markers in upper case", "tools/call", `"name":"echo"`, "=?BASE64?ZWNobw==?=", false}, // Requirement: HDR-25
		{"bad padding", "tools/call", `"name":"echo"`, "=?base64?ZWNobw=?=", false},            // Requirement: HDR-29
		{"raw UTF-8", "tools/call", `"name":"日本"`, "日本", false},                                // Requirement: HDR-29
		// Requirement: HDR-05, TASKX-23
		{"task", "tasks/get", `"taskId":"1"`, "1", true},
		// Requirement: HDR-05, TASKX-23
		{"task without a header", "tasks/get", `"taskId":"1"`, "-", false},
		// Requirement: HDR-05, TASKX-23
		{"another task", "tasks/get", `"taskId":"1"`, "2", false},
		// Requirement: HDR-05, TASKX-23
		{"update without a header", "tasks/update", `"taskId":"1"`, "-", false},
		// Requirement: HDR-05, TASKX-23
		{"update of another task", "tasks/update", `"taskId":"1"`, "2", false},
		// Requirement: HDR-05, TASKX-23
		{"cancellation without a header", "tasks/cancel", `"taskId":"1"`, "-", false},
		// Requirement: HDR-05, TASKX-23
		{"cancellation of another task", "tasks/cancel", `"taskId":"1"`, "2", false},
		// Requirement: HDR-05, TASKX-23
		{"task in the header only", "tasks/get", ``, "1", false},
		// Requirement: HDR-05, TASKX-23
		{"no task", "tasks/get", ``, "-", true},
		{"T-22 another method", "tools/list", ``, "anything", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			body, _ := modernCall(test.method, test.params)
			headers := []string{"MCP-Protocol-Version: " + modern, "Mcp-Method: " + test.method}
			if test.header != "-" {
				headers = append(headers, "Mcp-Name: "+test.header)
			}
			got := f.do(http.MethodPost, body, headers...)
			if mismatch := got.status == 400 && got.code() == driver.CodeHeaderMismatch; mismatch == test.ok {
				t.Errorf("got %d %s, want mismatch %t", got.status, got.body, !test.ok)
			}
		})
	}
}

// Requirement: HDR-08, TRN-06
func TestParamHeadersEqualTheArguments(t *testing.T) {
	f := start(t, newTestCore(), nil)
	for _, test := range []struct {
		name, arguments string
		headers         []string
		ok              bool
	}{
		{"absent", `{}`, nil, true},            // Requirement: HDR-27
		{"null", `{"region":null}`, nil, true}, // Requirement: HDR-27
		{"no arguments at all", ``, nil, true},
		{"string", `{"region":"Hello"}`, []string{"Region: Hello"}, true},
		{"encoded", `{"region":"Hello"}`, []string{"Region: =?base64?SGVsbG8=?="}, true}, // Requirement: HDR-10
		{"empty string", `{"region":""}`, []string{"Region: =?base64??="}, true},         // Requirement: HDR-36
		{"literal without the end marker", `{"region":"=?base64?SGVsbG8="}`, // Requirement: HDR-25
			[]string{"Region: =?base64?SGVsbG8="}, true},
		{"literal without markers", `{"region":"SGVsbG8="}`, []string{"Region: SGVsbG8="}, true}, // Requirement: HDR-25
		{"nested integer", `{"nested":{"count":42}}`, []string{"Count: 42"}, true},
		{"integers by value", `{"nested":{"count":42}}`, []string{"Count: 42.0"}, true}, // Requirement: HDR-30
		{"boolean", `{"dryRun":true}`, []string{"Dry-Run: true"}, true},
		{"unknown header is ignored", `{}`, []string{"Other: x"}, true},

		// Requirement: HDR-28
		{"missing", `{"region":"Hello"}`, nil, false},
		// Requirement: HDR-08
		{"another value", `{"region":"Hello"}`, []string{"Region: hello"}, false},
		// Requirement: HDR-08
		{"not in the body", `{}`, []string{"Region: Hello"}, false},
		// Requirement: HDR-08
		{"null in the body", `{"region":null}`, []string{"Region: null"}, false},
		// Requirement: HDR-29
		{"bad padding", `{"region":"Hello"}`, []string{"Region: =?base64?SGVsbG8?="}, false},
		// Requirement: HDR-29
		{"bad characters", `{"region":"Hello"}`, []string{"Region: =?base64?SGVs!!!bG8=?="}, false},
		// Requirement: HDR-29
		{"not UTF-8", `{"region":"Hello"}`, []string{"Region: =?base64?/w==?="}, false},
		// Requirement: HDR-08
		{"another integer", `{"nested":{"count":42}}`, []string{"Count: 43"}, false},
		// Requirement: HDR-17
		{"unsafe integer", `{"nested":{"count":9007199254740992}}`, []string{"Count: 9007199254740992"}, false},
		{"boolean in another case", `{"dryRun":true}`, []string{"Dry-Run: True"}, false},
		{"object", `{"region":{}}`, []string{"Region: {}"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			params := `"name":"mirror"`
			if test.arguments != "" {
				params += `,"arguments":` + test.arguments
			}
			body, headers := modernCall("tools/call", params)
			for _, h := range test.headers {
				headers = append(headers, "mcp-param-"+h)
			}
			got := f.do(http.MethodPost, body, headers...)
			if got.status != 200 == test.ok || !test.ok && got.code() != driver.CodeHeaderMismatch {
				t.Errorf("got %d %s, want mismatch %t", got.status, got.body, !test.ok)
			}
		})
	}
}

func FuzzHeaderValue(f *testing.F) {
	for _, seed := range []string{"", "us-west1", "Hello, 世界", " padded ", "line1\nline2", "=?base64?literal?=",
		"=?base64?=", "=?base64?SGVsbG8=?=",
		"=?BASE64?SGVsbG8=?=", "=?base64?SGVs\r\nbG8=?=", "=?base64?SGVsbG9=?=", "tab\tinside", "\x7f",
		"a\x00b", "=?base64??="} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if utf8.ValidString(s) {
			encoded := mcphttp.EncodeHeaderValue(s)
			if got, err := mcphttp.DecodeHeaderValue(encoded); err != nil || got != s {
				t.Errorf("%q is encoded as %q and decoded as %q, %v", s, encoded, got, err)
			}
			if encoded != strings.Trim(encoded, " \t") ||
				strings.IndexFunc(encoded, func(c rune) bool { return c != '\t' && c < ' ' || c > '~' }) >= 0 {
				t.Errorf("%q is encoded as %q, which is not a header value", s, encoded)
			}
		}
		text, err := mcphttp.DecodeHeaderValue(s)
		if err != nil || text == s {
			return
		}
		// A text has only one encoded form.
		const prefix, suffix = "=?base64?", "?="
		if want := mcphttp.EncodeHeaderValue(text + "\n"); want[:len(prefix)] != prefix || !utf8.ValidString(text) {
			t.Errorf("%q is decoded as %q", s, text)
		}
		if s != prefix+stdBase64(text)+suffix {
			t.Errorf("%q is decoded as %q, which has another encoding", s, text)
		}
	})
}

func FuzzIntegers(f *testing.F) {
	for _, seed := range [][2]string{{"42", "42.0"}, {"42", "4.2e1"}, {"-0", "0"},
		{"9007199254740991", "9007199254740991"}, {"9007199254740992", "9007199254740992"},
		{"42.00000000000000000001", "42"}, {"1e400", "1e400"}, {"1e999999999999", "1"}, {"042", "42"},
		{"+42", "42"}, {"1e-1", "0.1"}, {"10e-1", "1"}, {"", ""}, {"0e5", "0"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a)+len(b) > 300 || strings.ContainsAny(a+b, "/_xXpPbBoO") || longExponent(a) || longExponent(b) {
			return // too long for big.Rat, or a form that only big.Rat accepts
		}
		x, xOK := new(big.Rat).SetString(a)
		y, yOK := new(big.Rat).SetString(b)
		safe := new(big.Int).SetInt64(1<<53 - 1)
		same := xOK && yOK && x.Cmp(y) == 0 && x.IsInt() && x.Num().CmpAbs(safe) <= 0
		got := mcphttp.EqualIntegers(a, b)
		if got && !same {
			t.Errorf("%s and %s are equal, want different", a, b)
		}
		if same && !got && isJSONNumber(a) && isJSONNumber(b) {
			t.Errorf("%s and %s are different, want equal", a, b)
		}
	})
}

func longExponent(s string) bool {
	i := strings.IndexAny(s, "eE")
	return i >= 0 && len(s)-i > 4 // numbers with exponents over 1000 are not compared
}

// The requests are written without net/http, which would change the names.
//
// Requirement: HTTP-18, HDR-07
func TestHeaderNamesInAnyCase(t *testing.T) {
	f := start(t, newTestCore(), nil)
	for _, change := range []func(string) string{strings.ToLower, strings.ToUpper} {
		for _, w := range f.rawClients() {
			for i, header := range w.headers {
				name, value, _ := strings.Cut(header, ":")
				w.headers[i] = change(name) + ":" + value
			}
			w.checkCall()
			if w.name == "modern" {
				body, _ := modernCall("tools/call", `"name":"echo"`)
				w.headers = override(w.headers, []string{change("Mcp-Name") + ": ECHO"})
				if got := w.post(body); got.status != 400 || got.code() != driver.CodeHeaderMismatch {
					t.Errorf("value in another case: got %d %s, want a header mismatch", got.status, got.body)
				}
			}
		}
	}
}

// A header that mirrors the body and occurs twice is a mismatch, even if both values are equal.
func TestHeaders_RepeatedMirrorsAreAMismatch(t *testing.T) {
	f := start(t, newTestCore(), nil)
	for _, name := range []string{"Mcp-Method", "Mcp-Name", "Mcp-Param-Region", "Mcp-Param-Unknown"} {
		for _, value := range []string{"tools/call", "mirror", "eu"} {
			header := name + ": " + value
			got := f.modern("tools/call", `"name":"mirror","arguments":{"region":"eu"}`, header, header)
			if got.status != 400 || got.code() != driver.CodeHeaderMismatch {
				t.Errorf("%s twice: got %d %s, want 400 and code %d", header, got.status, got.body, driver.CodeHeaderMismatch)
			}
		}
	}
	for _, name := range []string{"Mcp-Session-Id", "Mcp-Protocol-Version", "Origin"} {
		got := f.modern("tools/call", `"name":"echo"`, name+": a", name+": a")
		if got.status != 400 || got.code() != mcp.CodeInvalidRequest {
			t.Errorf("%s twice: got %d %s, want 400 and code %d", name, got.status, got.body, mcp.CodeInvalidRequest)
		}
	}
}
