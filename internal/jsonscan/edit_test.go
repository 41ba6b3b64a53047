package jsonscan_test

import (
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

func TestEditReplacesMembersAndElements(t *testing.T) {
	upper := func(key, member []byte) ([]byte, []byte) {
		if string(key) == "a" {
			return []byte("A"), []byte("2")
		}
		if key == nil {
			return nil, []byte("0")
		}
		return key, member
	}
	for text, want := range map[string]string{
		`{"a":1,"b" : [1]}`: `{"A":2,"b":[1]}`, `[1,"x"]`: `[0,0]`, `{ "b" : 1 }`: `{ "b" : 1 }`, `{"":1}`: `{"":1}`,
		`"a"`: `"a"`, `[]`: `[]`,
	} {
		if got := jsonscan.Edit([]byte(text), upper); string(got) != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestEditTextReplacesStringsAndNames(t *testing.T) {
	got := jsonscan.EditText([]byte(`{"key":["one\n",2,{"key":true}]}`), strings.ToUpper)
	if want := `{"KEY":["ONE\n",2,{"KEY":true}]}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
