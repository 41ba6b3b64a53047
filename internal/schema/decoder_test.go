package schema_test

import (
	stdjson "encoding/json"
	"net"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/schema"
)

type (
	word  string
	grade int8

	// ordinary has only types that a Decoder decodes itself.
	ordinary struct {
		Text     string `json:"text"`
		Untagged string
		Word     word               `json:"word,omitempty"`
		Yes      bool               `json:"yes"`
		Int      int                `json:"int,omitzero"`
		Level    grade              `json:"level"`
		Int64    int64              `json:"int64"`
		Uint8    uint8              `json:"uint8"`
		Uint     uint               `json:"uint"`
		Float    float64            `json:"float"`
		Float32  float32            `json:"float32"`
		Pointer  *string            `json:"pointer"`
		Number   **int              `json:"number"`
		Texts    []string           `json:"texts"`
		Pointers []*grade           `json:"pointers"`
		Nested   struct{ A, B int } `json:"nested"`
		Objects  []struct {
			Name  string    `json:"name"`
			Sizes []float32 `json:"sizes"`
		} `json:"objects"`
		Empty struct{} `json:"empty"`
		Left  string   `json:"-"`
		_     int
	}

	// The other types have members that a Decoder leaves to Decode.
	branch struct {
		Name     string   `json:"name"`
		Children []branch `json:"children"`
	}
	withOwnForms struct {
		When  time.Time      `json:"when"`
		Long  time.Duration  `json:"long"`
		IP    net.IP         `json:"ip"`
		Num   stdjson.Number `json:"num"`
		Bytes []byte         `json:"bytes"`
	}
	withDynamicTypes struct {
		Any   any            `json:"any"`
		Map   map[string]int `json:"map"`
		Array [2]int         `json:"array"`
	}
	withTags struct {
		Quoted int    `json:"text,string"`
		Comma  string `json:"word,"`
		Odd    string `json:"-,"`
	}
	withIdentified struct {
		Identified
		Text string `json:"text"`
	}
)

// decodings are the types for which Decode and Decoder are compared.
var decodings = []reflect.Type{
	reflect.TypeFor[ordinary](), reflect.TypeFor[*ordinary](), reflect.TypeFor[[]ordinary](), reflect.TypeFor[string](),
	reflect.TypeFor[int64](), reflect.TypeFor[uint8](), reflect.TypeFor[float32](), reflect.TypeFor[bool](), reflect.TypeFor[struct{}](),
	reflect.TypeFor[branch](), reflect.TypeFor[withOwnForms](), reflect.TypeFor[withDynamicTypes](), reflect.TypeFor[withTags](),
	reflect.TypeFor[withIdentified](), reflect.TypeFor[struct{ private int }](),
}

var decoders = func() map[reflect.Type]*schema.Decoder {
	all := map[reflect.Type]*schema.Decoder{}
	for _, typ := range decodings {
		all[typ] = schema.NewDecoder(typ)
	}
	return all
}()

// compareDecoders compares a Decoder with Decode for valid JSON.
func compareDecoders(t *testing.T, text []byte) {
	t.Helper()
	for _, typ := range decodings {
		want, got := reflect.New(typ), reflect.New(typ)
		wantErr := schema.Decode(text, want.Interface())
		gotErr := decoders[typ].Decode(text, got.Interface())
		if wantErr != nil || gotErr != nil {
			if wantErr == nil || gotErr == nil || wantErr.Error() != gotErr.Error() {
				t.Errorf("%s from %s: got error %v, want %v", typ, text, gotErr, wantErr)
			}
			continue
		}
		if !reflect.DeepEqual(got.Interface(), want.Interface()) {
			t.Errorf("%s from %s: got %+v, want %+v", typ, text, got.Elem(), want.Elem())
		}
	}
}

var decoderSeeds = []string{
	`{"text{`,
	`{"text":"a","Untagged":"b","word":"c","yes":true,"int":-5,"level":127,"int64":9007199254740993,"uint8":255,"uint":7,"float":1.5e3,` +
		`"float32":0.1,"pointer":"p","number":12,"texts":["x","y"],"pointers":[1,null,-128],"nested":{"A":1,"B":2},` +
		`"objects":[{"name":"n","sizes":[1,2.5]},{}],"empty":{"more":[1,{}]},"Left":"l","-":"m","private":1,"unknown":{"a":["b"]}}`,
	` { "text" : "\u00e9\n\"\ud83d\ude00" , "texts" : [ ] , "\u0069nt" : 3 , "pointers" : [ ] } `,
	`{"text":null,"word":null,"yes":null,"int":null,"uint":null,"float":null,"pointer":null,"number":null,"texts":null,"nested":null,"objects":[null,{"sizes":null}]}`,
	`{"TEXT":"case","Text":"case","untagged":"case"}`,
	`{"int":5.0}`, `{"int":1e2}`, `{"int":-0}`, `{"uint":-0}`, `{"uint":-1}`, `{"uint8":256}`, `{"level":128}`, `{"level":-129}`,
	`{"int64":9223372036854775807}`, `{"int64":9223372036854775808}`, `{"uint":18446744073709551615}`, `{"float":1e400}`, `{"float32":1e39}`,
	`{"float":-0}`, `{"float32":3.4028235e38}`, `{"float":4.9e-324}`, `{"int":"1"}`, `{"text":1}`, `{"yes":"true"}`, `{"yes":0}`,
	`{"texts":{}}`, `{"texts":[1]}`, `{"texts":["a",1]}`, `{"nested":[]}`, `{"pointer":{}}`, `{"number":1.5}`, `[]`, `[{}]`, `[null]`, `"s"`, `7`,
	`300`, `-1`, `1.5`, `true`, `null`, `{}`, `{"name":"n","children":[{"name":"m","children":[]}]}`,
	`{"when":"2026-11-21T00:00:00Z","long":5,"ip":"::1","num":1.50,"bytes":"aGk="}`, `{"any":[1],"map":{"a":1},"array":[1,2]}`,
	`{"text":"7","word":"w","-":"o","id":"i"}`, `{"text":7}`,
}

func TestDecoderEqualsDecode(t *testing.T) {
	for _, text := range decoderSeeds {
		compareDecoders(t, []byte(text))
	}
}

func TestDecoderConcurrentUse(t *testing.T) {
	d := schema.NewDecoder(reflect.TypeFor[ordinary]())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 500 {
				var v ordinary
				text := []string{`{"text":"a","nested":{"A":1},"objects":[{"sizes":[1]}]}`, `{"text":"a","nested":{"A":1.5}}`}[i%2]
				if err := d.Decode([]byte(text), &v); (err != nil) != (i%2 == 1) {
					t.Errorf("%s: %v", text, err)
				}
			}
		})
	}
	all.Wait()
}

func FuzzDecoder(f *testing.F) {
	for _, text := range decoderSeeds {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if jsonscan.Valid(text, jsonscan.Limits{}) == nil {
			compareDecoders(t, text)
			return
		}
		for _, typ := range decodings {
			_ = decoders[typ].Decode(text, reflect.New(typ).Interface()) // must not panic, the result does not matter
		}
	})
}

func BenchmarkDecoder(b *testing.B) {
	type in struct {
		Message string `json:"message"`
	}
	text := []byte(`{"message":"hello, how are you today"}`)
	b.Run("Decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var v in
			_ = schema.Decode(text, &v)
		}
	})
	b.Run("Decoder", func(b *testing.B) {
		b.ReportAllocs()
		d := schema.NewDecoder(reflect.TypeFor[in]())
		for b.Loop() {
			var v in
			_ = d.Decode(text, &v)
		}
	})
}
