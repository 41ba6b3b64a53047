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
