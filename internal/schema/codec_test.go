package schema_test

import (
	stdjson "encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/internal/schema"
)

// celsius has its methods on the pointer, as many types do.
type celsius float64

func (c *celsius) MarshalText() ([]byte, error) {
	return []byte(stdjson.Number("20").String() + "°"), nil
}

type everything struct {
	Identified
	Omitted  int                `json:"omitted,omitempty"`
	Zero     time.Time          `json:"zero,omitzero"`
	Quoted   int                `json:"quoted,string"`
	Duration time.Duration      `json:"duration"`
	Bytes    []byte             `json:"bytes"`
	Array    [2]byte            `json:"array"`
	Raw      stdjson.RawMessage `json:"raw"`
	Any      any                `json:"any"`
	Text     celsius            `json:"text"`
	Slice    []string           `json:"slice"`
	Map      map[string]int     `json:"map"`
	Pointer  *int               `json:"pointer"`
	HTML     string             `json:"html"`
}

func TestEncodeFitsTheInferredSchema(t *testing.T) {
	got, err := schema.Encode(everything{Identified: Identified{ID: "x"}, Quoted: 5, Duration: time.Second, Raw: stdjson.RawMessage(`{ "a": 1 }`), HTML: "<&>"})
	const want = `{"id":"x","kind":"","quoted":"5","duration":1000000000,"bytes":"","array":[0,0],"raw":{"a":1},"any":null,"text":"20°","slice":[],"map":{},"pointer":null,"html":"<&>"}`
	if err != nil || string(got) != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
	s, err := schema.For(reflect.TypeFor[everything]())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(s.DropNulls(got)); err != nil {
		t.Errorf("the encoding does not match the schema of its type: %v", err)
	}
	if _, err := schema.Encode("\xff"); err == nil {
		t.Error("invalid UTF-8: got no error")
	}
}

func TestDecodeEqualsEncodingJSON(t *testing.T) {
	const text = `{"id":"x","kind":"k","omitted":1,"zero":"2026-11-21T00:00:00Z","quoted":"7","duration":5,"bytes":"aGk=","array":[1,2],` +
		`"raw":{"a":1.0},"any":{"b":[1.5,null]},"slice":["a"],"map":{"m":1},"pointer":3,"unknown":true}`
	var got, want everything
	if err := schema.Decode([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if err := stdjson.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeIsStrict(t *testing.T) {
	var v struct {
		Name string `json:"name"`
		Kind string
	}
	if err := schema.Decode([]byte(`{"Name":"x","NAME":"y","\u0130name":"z","kind":"k","Kınd":"l"}`), &v); err != nil || v.Name+v.Kind != "" {
		t.Errorf("names that differ: got %+v, %v, want no fields set", v, err)
	}
	for _, text := range []string{`{"name":"a","name":"b"}`, `{"name":"a","n\u0061me":"b"}`, "{\"name\":\"\xff\"}", `{"name":"\ud800"}`, `{} {}`, ``} {
		if err := schema.Decode([]byte(text), &v); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}

func TestDecodeAcceptsIntegersWithAFraction(t *testing.T) {
	var v struct {
		N  int8
		U  uint64
		F  float64
		S  string
		Ns []int64
	}
	if err := schema.Decode([]byte(`{"N":-5.0,"U":1.8446744073709551615e19,"F":1.5,"S":"1.0","Ns":[1e3,20.00]}`), &v); err != nil {
		t.Fatal(err)
	}
	if v.N != -5 || v.U != 1<<64-1 || v.F != 1.5 || v.S != "1.0" || v.Ns[0] != 1000 || v.Ns[1] != 20 {
		t.Errorf("got %+v", v)
	}
	for _, text := range []string{`{"N":1.5}`, `{"N":1e3}`, `{"U":1e30}`, `{"U":-1.0}`} {
		if err := schema.Decode([]byte(text), &v); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}

func TestDecodeErrorsNameValueAndType(t *testing.T) {
	type target struct {
		N     int8               `json:"n"`
		List  []struct{ A bool } `json:"list"`
		When  time.Time          `json:"when"`
		Addr  netip.Addr         `json:"addr"`
		Bytes []byte             `json:"bytes"`
		Map   map[string]uint    `json:"map"`
		Raw   stdjson.RawMessage
		F     float64
		P     **uint8
		I     int
		C     chan int `json:"c"`
	}
	for text, want := range map[string]string{
		`{"n":"x"}`:            `/n: got the string "x", want an integer from -128 to 127`,
		`{"n":300}`:            `/n: got the number 300, want an integer from -128 to 127 (value out of range)`,
		`{"list":[{"A":1}]}`:   `/list/0/A: got the number 1, want true or false`,
		`{"list":{}}`:          `/list: got an object, want an array`,
		`{"when":"yesterday"}`: `/when: got the string "yesterday", want a date-time as in 2006-01-02T15:04:05Z`,
		`{"addr":"x"}`:         `/addr: got the string "x", want a string (ParseAddr("x"): unable to parse IP)`,
		`{"bytes":"%"}`:        `/bytes: got the string "%", want a base64 string`,
		`{"map":{"a/b":-1}}`:   `/map/a~1b: got the number -1, want an integer from 0 up`,
		`[]`:                   `got an array, want an object`,
		`{"F":[]}`:             `/F: got an array, want a number`,
		`{"P":256}`:            `/P: got the number 256, want an integer from 0 to 255 (value out of range)`,
		`{"I":1e30}`:           `/I: got the number 1e30, want an integer`,
		`{"c":1}`:              `/c: got the number 1`,
		`{"n":1`:               `invalid JSON: unexpected EOF`,
	} {
		err := schema.Decode([]byte(text), new(target))
		if _, ok := err.(*schema.ValidationError); !ok || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
	}
}
