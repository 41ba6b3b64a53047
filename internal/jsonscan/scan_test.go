package jsonscan_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// accepted lists texts that Valid accepts.
var accepted = []string{
	`{}`, `[]`, `""`, `0`, `-0`, `1`, `-1.5e+10`, `1E5`, `0.0`, `true`, `false`, `null`,
	" \t\r\n{ \"a\" : [ 1 , 2 ] } \n",
	`{"a":{"a":1},"b":{"a":1}}`,
	`{"":1}`,
	`{"a":1,"A":2,"a\u0000":3}`,
	`{"k":1,"K":2,"\u017f":3,"s":4,"S":5}`,
	`"\"\\\/\b\f\n\r\t\u0041\uD83D\uDE00"`,
	"\"\u00e9\u6771\U0001F600\u2028\uFEFF\u007f\"",
	`"` + strings.Repeat("x", 100) + `"`,
	`"` + strings.Repeat("東", 100) + `"`,
	strings.Repeat("[", 64) + strings.Repeat("]", 64),
	strings.Repeat(`{"a":`, 64) + "1" + strings.Repeat("}", 64),
}

// refused lists texts that Valid rejects, with the offset and reason.
var refused = []struct {
	text   string
	offset int
	reason jsonscan.Reason
}{
	{"", 0, jsonscan.Malformed},
	{" ", 1, jsonscan.Malformed},
	{"{", 1, jsonscan.Malformed},
	{"[", 1, jsonscan.Malformed},
	{`"`, 1, jsonscan.Malformed},
	{`{"a"`, 4, jsonscan.Malformed},
	{`{"a":`, 5, jsonscan.Malformed},
	{`{"a":1`, 6, jsonscan.Malformed},
	{`{"a":1,`, 7, jsonscan.Malformed},
	{`{"a":1,}`, 7, jsonscan.Malformed},
	{`[1,]`, 3, jsonscan.Malformed},
	{`[,1]`, 1, jsonscan.Malformed},
	{`[1 2]`, 3, jsonscan.Malformed},
	{`{a:1}`, 1, jsonscan.Malformed},
	{`{'a':1}`, 1, jsonscan.Malformed},
	{`{1:1}`, 1, jsonscan.Malformed},
	{`{"a" 1}`, 5, jsonscan.Malformed},
	{`{"a":1]`, 6, jsonscan.Malformed},
	{`[1}`, 2, jsonscan.Malformed},
	{`tru`, 0, jsonscan.Malformed},
	{`True`, 0, jsonscan.Malformed},
	{`nulL`, 0, jsonscan.Malformed},
	{`NaN`, 0, jsonscan.Malformed},
	{`-Infinity`, 1, jsonscan.Malformed},
	{`+1`, 0, jsonscan.Malformed},
	{`.5`, 0, jsonscan.Malformed},
	{`5.`, 2, jsonscan.Malformed},
	{`1e`, 2, jsonscan.Malformed},
	{`1e+`, 3, jsonscan.Malformed},
	{`-`, 1, jsonscan.Malformed},
	{`// c`, 0, jsonscan.Malformed},
	{"\"a\nb\"", 2, jsonscan.Malformed},
	{"\"a\x00\"", 2, jsonscan.Malformed},
	{"\"0123456789\x1f\"", 11, jsonscan.Malformed},
	{`"\x41"`, 1, jsonscan.Malformed},
	{`"\u00g0"`, 1, jsonscan.Malformed},
	{`"\u004"`, 1, jsonscan.Malformed},
	{`"\`, 1, jsonscan.Malformed},
	{"\"\xff\"", 0, jsonscan.InvalidUTF8},
	{"\"\xc0\xaf\"", 0, jsonscan.InvalidUTF8},
	{"\"\xed\xa0\x80\"", 0, jsonscan.InvalidUTF8},
	{"\"\xf4\x90\x80\x80\"", 0, jsonscan.InvalidUTF8},
	{"\"0123456789\xe6\x9d\"", 0, jsonscan.InvalidUTF8},
	{"{\"\xff\":1}", 1, jsonscan.InvalidUTF8},
	{`"\uD800"`, 1, jsonscan.LoneSurrogate},
	{`"\uDC00"`, 1, jsonscan.LoneSurrogate},
	{`"\uDC00\uD800"`, 1, jsonscan.LoneSurrogate},
	{`"\uD800\u0041"`, 1, jsonscan.LoneSurrogate},
	{`"\uD800x"`, 1, jsonscan.LoneSurrogate},
	{`{"\uD800":1}`, 2, jsonscan.LoneSurrogate},
	{"\uFEFF{}", 0, jsonscan.ByteOrderMark},
	{"\xff\xfe{\x00}\x00", 0, jsonscan.Malformed},
	{"{}\uFEFF", 2, jsonscan.TrailingData},
	{`{}{}`, 2, jsonscan.TrailingData},
	{`{} x`, 3, jsonscan.TrailingData},
	{`01`, 1, jsonscan.TrailingData},
	{`-01`, 2, jsonscan.TrailingData},
	{"{}\x00", 2, jsonscan.TrailingData},
	{`{"a":1,"a":2}`, 7, jsonscan.DuplicateKey},
	{`{"a":1,"\u0061":2}`, 7, jsonscan.DuplicateKey},
	{`{"\uD83D\uDE00":1,"😀":2}`, 18, jsonscan.DuplicateKey},
	{`{"":1,"":2}`, 6, jsonscan.DuplicateKey},
	{`[[{"b":{"a":1,"a":2}}]]`, 14, jsonscan.DuplicateKey},
	{`[{"a":1,"a":2},{"b":1,"b":2}]`, 8, jsonscan.DuplicateKey},
	{`{"a":1,"a":2} x`, 14, jsonscan.TrailingData},
	{strings.Repeat("[", 65) + strings.Repeat("]", 65), 64, jsonscan.TooDeep},
	{strings.Repeat("[", 64) + "{}" + strings.Repeat("]", 64), 64, jsonscan.TooDeep},
	{strings.Repeat("[", 65) + `"]\`, 68, jsonscan.Malformed},
	{strings.Repeat("[", 65) + "\"]\n\"" + strings.Repeat("]", 65), 64, jsonscan.TooDeep},
	{strings.Repeat("[", 1<<20), 1 << 20, jsonscan.Malformed},
	{strings.Repeat(`{"a":`, 1<<18), 5 << 18, jsonscan.Malformed},
}

func TestValidAcceptsJSON(t *testing.T) {
	for _, text := range accepted {
		if err := jsonscan.Valid([]byte(text), jsonscan.Limits{}); err != nil {
			t.Errorf("Valid(%.60q) = %v, want nil", text, err)
		}
	}
}

func TestValidRejectsOtherTextWithReasonAndOffset(t *testing.T) {
	for _, tt := range refused {
		err := jsonscan.Valid([]byte(tt.text), jsonscan.Limits{})
		fault, ok := errors.AsType[*jsonscan.SyntaxError](err)
		if !ok {
			t.Errorf("Valid(%.60q) = %v, want %v", tt.text, err, tt.reason)
			continue
		}
		if fault.Reason != tt.reason || fault.Offset != tt.offset {
			t.Errorf("Valid(%.60q) = %v, want %v at byte %d", tt.text, fault, tt.reason, tt.offset)
		}
		if got, want := fault.WellFormed(), tt.reason >= jsonscan.DuplicateKey; got != want {
			t.Errorf("Valid(%.60q): WellFormed = %t, want %t", tt.text, got, want)
		}
	}
}

func TestErrorTextsDifferAndContainNoInput(t *testing.T) {
	texts := map[string]bool{}
	for reason := jsonscan.Malformed; reason <= jsonscan.TooManyKeys; reason++ {
		texts[reason.String()] = true
	}
	texts[jsonscan.Reason(0).String()] = true
	if want := int(jsonscan.TooManyKeys) + 1; len(texts) != want {
		t.Errorf("%d different texts, want %d: %v", len(texts), want, texts)
	}
	err := jsonscan.Valid([]byte(`{"secret":1,"secret":2}`), jsonscan.Limits{})
	if want := "duplicate key at byte 12"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
}

// Strings are scanned in steps of eight bytes: each kind of byte is tested at each position.
func TestSpecialBytesOfStringsAreFoundAtEveryPosition(t *testing.T) {
	for length := range 40 {
		for at := range length {
			for _, c := range []byte{0, 0x1f, ' ', '!', '"', '#', '[', '\\', ']', 0x7f, 0x80, 0xff} {
				body := bytes.Repeat([]byte{'x'}, length)
				body[at] = c
				text := `"` + string(body) + `"`
				want := jsonscan.Reason(0)
				switch {
				case c < ' ' || c == '\\':
					want = jsonscan.Malformed
				case c == '"':
					want = jsonscan.TrailingData
				case c >= 0x80:
					want = jsonscan.InvalidUTF8
				}
				var got jsonscan.Reason
				if fault, ok := errors.AsType[*jsonscan.SyntaxError](jsonscan.Valid([]byte(text),
					jsonscan.Limits{})); ok {
					got = fault.Reason
				}
				if got != want {
					t.Fatalf("Valid(%q) = %v, want %v", text, got, want)
				}
			}
		}
	}
}

func object(keys int, key func(i int) string) []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for i := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"%s":%d`, key(i), i)
	}
	b.WriteByte('}')
	return b.Bytes()
}

func TestDuplicatesAmongManyKeysAreFound(t *testing.T) {
	for _, keys := range []int{2, 15, 16, 17, 18, 100, 9_999} {
		distinct := func(i int) string { return fmt.Sprintf("key%05d", i) }
		if err := jsonscan.Valid(object(keys, distinct), jsonscan.Limits{}); err != nil {
			t.Errorf("%d distinct keys: got %v, want no error", keys, err)
		}
		for _, pair := range [][2]int{{0, 1}, {0, keys - 1}, {keys / 2, keys - 1}} {
			if pair[0] == pair[1] {
				continue
			}
			text := object(keys, func(i int) string {
				if i == pair[1] {
					return fmt.Sprintf(`k\u0065y%05d`, pair[0])
				}
				return distinct(i)
			})
			fault, ok := errors.AsType[*jsonscan.SyntaxError](jsonscan.Valid(text, jsonscan.Limits{}))
			if !ok || fault.Reason != jsonscan.DuplicateKey {
				t.Errorf("%d keys, %v equal: got %v, want %v", keys, pair, fault, jsonscan.DuplicateKey)
			}
		}
	}
}

func TestDepthAndKeysAreLimited(t *testing.T) {
	nested := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	keys := func(n int) []byte { return object(n, func(i int) string { return fmt.Sprint(i) }) }
	tests := []struct {
		name     string
		lim      jsonscan.Limits
		at, over []byte
		reason   jsonscan.Reason
	}{
		{"default depth", jsonscan.Limits{}, nested(jsonscan.DefaultDepth), nested(jsonscan.DefaultDepth + 1),
			jsonscan.TooDeep},
		{"depth 16", jsonscan.Limits{Depth: 16}, nested(16), nested(17), jsonscan.TooDeep},
		{"depth 1", jsonscan.Limits{Depth: 1}, nested(1), nested(2), jsonscan.TooDeep},
		{"default keys", jsonscan.Limits{}, keys(jsonscan.DefaultKeys), keys(jsonscan.DefaultKeys + 1),
			jsonscan.TooManyKeys},
		{"3 keys", jsonscan.Limits{Keys: 3}, keys(3), keys(4), jsonscan.TooManyKeys},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := jsonscan.Valid(tt.at, tt.lim); err != nil {
				t.Errorf("at the limit: got %v, want no error", err)
			}
			fault, ok := errors.AsType[*jsonscan.SyntaxError](jsonscan.Valid(tt.over, tt.lim))
			if !ok || fault.Reason != tt.reason {
				t.Errorf("over the limit: got %v, want %v", fault, tt.reason)
			}
		})
	}
}

func TestScanReturnsTheEndOfAValue(t *testing.T) {
	data := []byte(`  {"a":[1]} , [2]x {"d":1,"d":2} tail`)
	tests := []struct {
		at, end int
		reason  jsonscan.Reason
	}{
		{0, 11, 0},
		{13, 17, 0},
		{18, 32, jsonscan.DuplicateKey},
		{33, 33, jsonscan.Malformed},
		{len(data), len(data), jsonscan.Malformed},
	}
	for _, tt := range tests {
		end, err := jsonscan.Scan(data, tt.at, jsonscan.Limits{})
		var reason jsonscan.Reason
		if fault, ok := errors.AsType[*jsonscan.SyntaxError](err); ok {
			reason = fault.Reason
		}
		if end != tt.end || reason != tt.reason {
			t.Errorf("Scan from %d = %d, %v; want %d, %v", tt.at, end, err, tt.end, tt.reason)
		}
	}
}

func TestVisitCallsForEveryMember(t *testing.T) {
	tests := []struct {
		text string
		want []string
	}{
		{`{"a":1, "b" : {"c":2}, "\u0064":[3] }`, []string{"a=1", `b={"c":2}`, "d=[3]"}},
		{`{"a":1,"a":2,"b":3}`, []string{"a=1", "a=2", "b=3"}},
		{`{"a":1,"b":[1,"c":2}`, []string{"a=1", "b=<nil>"}},
		{`[{"a":1}]`, nil},
		{`{}`, nil},
	}
	for _, tt := range tests {
		var got []string
		_ = jsonscan.Visit([]byte(tt.text), jsonscan.Limits{}, func(key, value []byte) {
			if value == nil {
				value = []byte("<nil>")
			}
			got = append(got, string(key)+"="+string(value))
		})
		if fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("Visit(%s): got %q, want %q", tt.text, got, tt.want)
		}
	}
}

// message has the shape of a real call.
const message = `{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"echo",` +
	`"arguments":{"message":"héllo"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","list":[1,2,3]}}}`

// Keys with escapes are copied. The copies are released at the end of their object.
func TestMemoryForEscapedKeysIsBounded(t *testing.T) {
	var many strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&many, `,"\n%d":0`, i)
	}
	for name, text := range map[string]string{
		"many objects":      `[{"\n":0}` + strings.Repeat(`,{"\n":0}`, 100_000) + `]`,
		"one large object":  `{` + many.String()[1:] + `}`,
		"one beside others": `[[{"\n":{"\n":0}}` + strings.Repeat(`,{"\n":{"\n":0},"\t":1}`, 50_000) + `]]`,
	} {
		data := []byte(text)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_ = jsonscan.Valid(data, jsonscan.Limits{})
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 3*uint64(len(data)) {
			t.Errorf("%s: allocated %d bytes for a text of %d, want at most three times as many", name, got, len(data))
		}
	}
}
