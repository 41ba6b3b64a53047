package mcphttp_test

import (
	"math/big"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func TestHDR04_Name(t *testing.T) {
	f := start(t, newTestCore(), nil)
	for _, test := range []struct {
		name, method, params, header string
		ok                           bool
	}{
		{"tool", "tools/call", `"name":"echo"`, "echo", true},
		{"prompt", "prompts/get", `"name":"p"`, "p", true},
		{"resource", "resources/read", `"uri":"file:///a%20b"`, "file:///a%20b", true},
		{"escaped in the body", "tools/call", `"name":"\u0065cho"`, "echo", true},
		{"HDR10 encoded", "tools/call", `"name":"echo"`, "=?base64?ZWNobw==?=", true},
		{"HDR06 not ASCII", "tools/call", `"name":"日本"`, "=?base64?5pel5pys?=", true},
		{"HDR09 missing", "tools/call", `"name":"echo"`, "-", false},
		{"HDR08 other", "tools/call", `"name":"echo"`, "other", false},
		{"HDR07 other case", "tools/call", `"name":"echo"`, "Echo", false},
		{"HDR08 no name in the body", "tools/call", ``, "echo", false},
		{"HDR08 not a string", "tools/call", `"name":1`, "1", false},
		{"the escape taken literally", "tools/call", `"name":"\u0065cho"`, `\u0065cho`, false},
		{"HDR25 marks in upper case", "tools/call", `"name":"echo"`, "=?BASE64?ZWNobw==?=", false},
		{"HDR29 bad padding", "tools/call", `"name":"echo"`, "=?base64?ZWNobw=?=", false},
		{"HDR29 raw UTF-8", "tools/call", `"name":"日本"`, "日本", false},
		{"HDR05 TASKX23 task", "tasks/get", `"taskId":"1"`, "1", true},
		{"HDR05 TASKX23 task, missing", "tasks/get", `"taskId":"1"`, "-", false},
		{"HDR05 TASKX23 task, other", "tasks/get", `"taskId":"1"`, "2", false},
		{"HDR05 TASKX23 task to be answered, missing", "tasks/update", `"taskId":"1"`, "-", false},
		{"HDR05 TASKX23 task to be answered, other", "tasks/update", `"taskId":"1"`, "2", false},
		{"HDR05 TASKX23 task to be cancelled, missing", "tasks/cancel", `"taskId":"1"`, "-", false},
		{"HDR05 TASKX23 task to be cancelled, other", "tasks/cancel", `"taskId":"1"`, "2", false},
		{"HDR05 TASKX23 no task in the body", "tasks/get", ``, "1", false},
		{"HDR05 TASKX23 no task at all", "tasks/get", ``, "-", true},
		{"T22 another method", "tools/list", ``, "anything", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			body, _ := modernCall(test.method, test.params)
			headers := []string{"mcp-protocol-version: " + modern,
				"MCP-METHOD: " + test.method} // HDR18: names in any case
			if test.header != "-" {
				headers = append(headers, "Mcp-Name: "+test.header)
			}
			got := f.do(http.MethodPost, body, headers...)
			if mismatch := got.status == 400 && got.code() == mcp.CodeHeaderMismatch; mismatch == test.ok {
				t.Errorf("got %d %s", got.status, got.body)
			}
		})
	}
}

func TestHDR08_TRN06_Params(t *testing.T) {
	f := start(t, newTestCore(), nil)
	for _, test := range []struct {
		name, arguments string
		headers         []string
		ok              bool
	}{
		{"none", `{}`, nil, true},
		{"HDR27 null", `{"region":null}`, nil, true},
		{"no arguments at all", ``, nil, true},
		{"string", `{"region":"Hello"}`, []string{"Region: Hello"}, true},
		{"HDR10 encoded", `{"region":"Hello"}`, []string{"Region: =?base64?SGVsbG8=?="}, true},
		{"HDR36 empty string", `{"region":""}`, []string{"Region: =?base64??="}, true},
		{"literal that looks encoded", `{"region":"=?base64?SGVsbG8="}`, []string{"Region: =?base64?SGVsbG8="}, true},
		{"literal without marks", `{"region":"SGVsbG8="}`, []string{"Region: SGVsbG8="}, true},
		{"nested integer", `{"nested":{"count":42}}`, []string{"Count: 42"}, true},
		{"HDR30 integers by value", `{"nested":{"count":42}}`, []string{"Count: 42.0"}, true},
		{"boolean", `{"dryRun":true}`, []string{"Dry-Run: true"}, true},
		{"HDR32 unknown header", `{}`, []string{"Other: x"}, true},

		{"HDR28 missing", `{"region":"Hello"}`, nil, false},
		{"HDR08 other", `{"region":"Hello"}`, []string{"Region: hello"}, false},
		{"not in the body", `{}`, []string{"Region: Hello"}, false},
		{"null in the body", `{"region":null}`, []string{"Region: null"}, false},
		{"HDR29 bad padding", `{"region":"Hello"}`, []string{"Region: =?base64?SGVsbG8?="}, false},
		{"HDR29 bad characters", `{"region":"Hello"}`, []string{"Region: =?base64?SGVs!!!bG8=?="}, false},
		{"HDR29 not UTF-8", `{"region":"Hello"}`, []string{"Region: =?base64?/w==?="}, false},
		{"other integer", `{"nested":{"count":42}}`, []string{"Count: 43"}, false},
		{"HDR17 unsafe integer", `{"nested":{"count":9007199254740992}}`, []string{"Count: 9007199254740992"}, false},
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
			if got.status != 200 == test.ok || !test.ok && got.code() != mcp.CodeHeaderMismatch {
				t.Errorf("got %d %s", got.status, got.body)
			}
		})
	}
}

func FuzzHeaderValue(f *testing.F) {
	for _, seed := range []string{"", "us-west1", "Hello, 世界", " padded ", "line1\nline2", "=?base64?literal?=",
		"=?base64?=", "=?base64?SGVsbG8=?=",
		"=?BASE64?SGVsbG8=?=", "=?base64?SGVs\r\nbG8=?=", "=?base64?SGVsbG9=?=", "tab\tinside", "\x7f", "a\x00b", "=?base64??="} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if utf8.ValidString(s) {
			encoded := mcphttp.EncodeHeaderValue(s)
			if got, err := mcphttp.DecodeHeaderValue(encoded); err != nil || got != s {
				t.Errorf("%q comes back from %q as %q, %v", s, encoded, got, err)
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
		// One text has one encoded form.
		const prefix, suffix = "=?base64?", "?="
		if want := mcphttp.EncodeHeaderValue(text + "\n"); want[:len(prefix)] != prefix || !utf8.ValidString(text) {
			t.Errorf("%q is decoded as %q", s, text)
		}
		if s != prefix+stdBase64(text)+suffix {
			t.Errorf("%q is decoded as %q, which is encoded otherwise", s, text)
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
			return // more than the reference can take, or what it takes beside decimals
		}
		x, xOK := new(big.Rat).SetString(a)
		y, yOK := new(big.Rat).SetString(b)
		safe := new(big.Int).SetInt64(1<<53 - 1)
		same := xOK && yOK && x.Cmp(y) == 0 && x.IsInt() && x.Num().CmpAbs(safe) <= 0
		got := mcphttp.EqualIntegers(a, b)
		if got && !same {
			t.Errorf("%s and %s are taken for one", a, b)
		}
		if same && !got && isJSONNumber(a) && isJSONNumber(b) {
			t.Errorf("%s and %s are not taken for one", a, b)
		}
	})
}

func longExponent(s string) bool {
	i := strings.IndexAny(s, "eE")
	return i >= 0 && len(s)-i > 5
}
