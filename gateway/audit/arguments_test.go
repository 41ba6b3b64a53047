package audit_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/audit"
)

func TestFormsOfArguments(t *testing.T) {
	hf := "hf_" + strings.Repeat("aB", 17)
	arguments := `{"path":"/srv/a","limit":10,"dry":true,"none":null,"password":"hunter2","headers":{"Cookie":["a","b"]},` +
		`"list":["x",{"y":1}],"text":"use ` + hf + ` or Bearer abcdefgh","long":"` + strings.Repeat("é", 250) + `"}`
	for form, want := range map[audit.Arguments]string{
		audit.ArgumentsShape: `{"shape":{"path":"string:6","limit":"number","dry":"boolean","none":null,` +
			`"password":"string:7","headers":{"Cookie":["array:2","string:1"]},"list":["array:2","string:1"],` +
			`"text":"string:60","long":"string:500"},"bytes":N}`,
		audit.ArgumentsHash: `{"hash":"H","bytes":N}`,
		audit.ArgumentsRedacted: `{"redacted":{"path":"/srv/a","limit":10,"dry":true,"none":null,` +
			`"password":"[redacted]","headers":{"Cookie":["[redacted]","[redacted]"]},"list":["x",{"y":1}],` +
			`"text":"use [redacted] or [redacted]","long":"` + strings.Repeat("é", 200) + `… (250 characters)"},"bytes":N}`,
		audit.ArgumentsFull: `{"full":` + arguments + `,"bytes":N}`,
	} {
		t.Run(string(form), func(t *testing.T) {
			o := testOptions(t.TempDir())
			o.Arguments = form
			l := open(t, o)
			r := call(1)
			r.Arguments = json.RawMessage(arguments)
			record(t, l, r)
			closeLog(t, l)
			var got string
			for _, e := range readAll(t, o.Dir) {
				var line struct{ Args json.RawMessage }
				if err := json.Unmarshal(e.Raw, &line); err != nil {
					t.Fatal(err)
				}
				if line.Args != nil {
					got = string(line.Args)
				}
			}
			got = regexp.MustCompile(`"bytes":\d+`).ReplaceAllString(got, `"bytes":N`)
			got = regexp.MustCompile(`"hash":"[^"]{16,}"`).ReplaceAllString(got, `"hash":"H"`)
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// redactedForm returns the redacted form of arguments in the log.
func redactedForm(t *testing.T, arguments any) string {
	t.Helper()
	raw, err := json.Marshal(arguments)
	if err != nil {
		t.Fatal(err)
	}
	o := testOptions(t.TempDir())
	o.Arguments = audit.ArgumentsRedacted
	l := open(t, o)
	r := call(1)
	r.Arguments = raw
	record(t, l, r)
	closeLog(t, l)
	for _, e := range readAll(t, o.Dir) {
		var line struct {
			Args struct{ Redacted json.RawMessage }
		}
		if err := json.Unmarshal(e.Raw, &line); err != nil {
			t.Fatal(err)
		}
		if line.Args.Redacted != nil {
			return string(line.Args.Redacted)
		}
	}
	t.Fatal("the log has no record with arguments")
	return ""
}

func TestRedactedArgumentsHaveNoSecrets(t *testing.T) {
	for _, name := range []string{
		"pw", "userPw", "user_pw", "PASS", "otp", "otpCode", "totp", "mfa_code", "2fa", "pin", "cardPin", "tan", "cvv", "cvc",
		"cardNumber", "card_no", "ssn", "iban", "jwt", "sid", "dsn", "passcode", "api-key", "accessKey", "recoveryCode",
		"one_time_code", "mnemonic", "connectionString", "signingKey", "puk",
	} {
		if got := redactedForm(t, map[string]any{name: "geheim", "n": map[string]any{name: 4711}}); strings.Contains(got, "geheim") ||
			strings.Contains(got, "4711") {
			t.Errorf("%s: got %s", name, got)
		}
	}
	for _, text := range []string{
		"password=hunter2", "login --password hunter2 now", "--api-key=hunter2", "PGPASSWORD='hunter2 x' psql", "otp: hunter2",
		"https://a.example/?x=1&access_token=hunter2&y=2", "Cookie: a=hunter2; b=hunter2", "Authorization: Digest u=hunter2",
		"X-Api-Key: hunter2", `{"password": "hunter2"}`, `{\"password\": \"hunter2\"}`, "<password>hunter2</password>",
		"DB_PASSWD: hunter2\nport: 1", "my password is hunter2", "curl -u hunter2:x http://a.example", "token => hunter2",
	} {
		if got := redactedForm(t, map[string]any{"text": text}); strings.Contains(got, "hunter2") || !strings.Contains(got, "[redacted]") {
			t.Errorf("%s: got %s", text, got)
		}
	}
	for _, card := range []any{
		"4111 1111 1111 1111", "pay with 5500-0000-0000-0004 now", "378282246310005", 4111111111111111, "4111111111111111,",
	} {
		if got := redactedForm(t, map[string]any{"x": card}); regexp.MustCompile(`\d{4}`).MatchString(got) {
			t.Errorf("card %v: got %s", card, got)
		}
	}
}

func TestRedactedArgumentsKeepOtherTexts(t *testing.T) {
	for _, kept := range []string{
		`{"author":"Ann"}`, `{"company":"ACME"}`, `{"shipping":"fast"}`, `{"text":"4111 1111 1111 1112"}`, `{"text":"the password"}`,
		`{"text":"order 123456789012"}`, `{"standard":"a"}`, `{"text":"span=3, compass: north"}`, `{"time":"2026-01-02T03:04:05Z"}`,
		`{"id":1234567890123}`,
	} {
		if got := redactedForm(t, json.RawMessage(kept)); got != kept {
			t.Errorf("got %s, want %s", got, kept)
		}
	}
}

func TestRedactedArgumentsHaveABound(t *testing.T) {
	long := strings.Repeat("a=1 ", 2000)
	list := make([]string, 500)
	for i := range list {
		list[i] = long
	}
	list[499] += "password=hunter2"
	got := redactedForm(t, list)
	if !strings.Contains(got, "[omitted] (") || strings.Contains(got, "hunter2") || !strings.Contains(got, "a=1 a=1") {
		t.Errorf("got %.300s … %s, want later texts omitted", got, got[len(got)-100:])
	}
	// A secret at the end of the searched part is not left as a part.
	filler := strings.Repeat("password="+strings.Repeat("x", 60)+" ", 60)
	if got := redactedForm(t, []string{filler[:4090] + " github_pat_" + strings.Repeat("A", 60)}); strings.Contains(got, "github_pat") {
		t.Errorf("got %s", got)
	}
}
