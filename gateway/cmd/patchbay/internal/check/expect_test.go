package check_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/check"
)

// The assertions about a result compare its content, and only describe times and ids.
func TestExpectComparesContent(t *testing.T) {
	for result, want := range map[string]string{
		`{"content":[{"type":"text","text":"42"}],"isError":false,"_meta":{"x":1},"resultType":"complete"}`: `` +
			`[{"at":"/content","equals":[{"type":"text","text":"42"}]},{"at":"/isError","equals":false}]`,
		`{"content":[{"type":"text","text":"at 12:01:07, ${A}"}]}`: `[{"at":"/isError","exists":false},` +
			`{"at":"/content/0/type","equals":"text"},` +
			`{"at":"/content/0/text","matches":"^at (T), \\$\\{A\\}$"},{"at":"/content","length":1}]`,
		`{"isError":false,"structuredContent":{"n":1.50,"userId":7,"a~/b":{"createdAt":"x","ok":null}}}`: `` +
			`[{"at":"/isError","equals":false},{"at":"/structuredContent/n","equals":1.50},` +
			`{"at":"/structuredContent/userId","type":"number"},` +
			`{"at":"/structuredContent/a~0~1b/createdAt","type":"string"},` +
			`{"at":"/structuredContent/a~0~1b/ok","equals":null}]`,
		`{"isError":false,"content":[{"type":"text","text":"{\"id\":1}"}]}`: `[{"at":"/isError","equals":false},` +
			`{"at":"/content/0/type","equals":"text"},{"at":"/content/0/text","matches":"^\\s*\\{"},` +
			`{"at":"/content","length":1}]`,
		`{"isError":false,"x":"` + strings.Repeat("é", 5000) + `"}`: `` +
			`[{"at":"/isError","equals":false},{"at":"/x","length":5000}]`,
	} {
		var got bytes.Buffer
		e := json.NewEncoder(&got)
		e.SetEscapeHTML(false)
		if err := e.Encode(check.Expect("tools/call", []byte(result))); err != nil {
			t.Fatal(err)
		}
		// The pattern of a time is long, and save_test.go of Explore checks it.
		text := got.String()
		if from := strings.Index(text, "([0-9a-fA-F]"); from >= 0 {
			to := strings.Index(text, `, \\$`)
			text = text[:from] + "(T)" + text[to:]
		}
		if text != want+"\n" {
			t.Errorf("%.200s: got\n%swant\n%s", result, text, want)
		}
	}
}

func TestSteadyHidesTimesAndIDs(t *testing.T) {
	deep := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	for value, want := range map[string]string{
		`{"id":7,"n":1.50,"createdAt":null,"ids":[1]}`: `{"id":"…","n":1.50,"createdAt":"…","ids":[1]}`,
		`["at 12:01:07", "caf\u00e9", {}]`:             `["at …","caf\u00e9",{}]`,
		`"{\"user_id\": 1, \"x\": 2}"`:                 `"{\"user_id\":\"…\",\"x\":2}"`,
		`{"_meta":{"progressToken":4}}`:                `{"_meta":{"progressToken":"…"}}`,
		`1.0`:                                          `1.0`,
		deep:                                           deep,
	} {
		if got := string(check.Steady([]byte(value))); got != want {
			t.Errorf("%.100s: got %.100s, want %.100s", value, got, want)
		}
	}
}

// A hostile result neither fills the file nor takes long.
func TestExpectIsBounded(t *testing.T) {
	deep := strings.Repeat(`{"a":[`, 5000) + strings.Repeat(`]}`, 5000)
	wide := "[" + strings.Repeat(`{"id":1,"b":"`+strings.Repeat("x", 5000)+`"},`, 1000) + "1]"
	for _, value := range []string{deep, wide} {
		all := check.Expect("tools/call", []byte(`{"isError":false,"structuredContent":`+value+`}`))
		text, err := json.Marshal(all)
		if err != nil || len(all) > 60 || len(text) > 256<<10 {
			t.Errorf("got %d assertions of %d bytes, %v", len(all), len(text), err)
		}
	}
}
