package mcp_test

import (
	"context"
	stdjson "encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// level implements encoding.TextMarshaler.
type level int

func (l level) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "L%d", int(l)), nil }

func (l *level) UnmarshalText(b []byte) error {
	_, err := fmt.Sscanf(string(b), "L%d", (*int)(l))
	return err
}

// point implements json.Marshaler.
type point struct{ x, y int }

func (p point) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, "[%d,%d]", p.x, p.y), nil }

func (p *point) UnmarshalJSON(b []byte) error {
	var pair [2]int
	err := stdjson.Unmarshal(b, &pair)
	p.x, p.y = pair[0], pair[1]
	return err
}

type omitting struct {
	Count  int               `json:"count,omitempty"`
	Flag   bool              `json:"flag,omitempty"`
	Rate   float64           `json:"rate,omitempty"`
	Name   string            `json:"name,omitempty"`
	Pair   [2]int            `json:"pair,omitempty"`
	Level  level             `json:"level,omitempty"`
	Tags   []string          `json:"tags,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Next   *int              `json:"next,omitempty"`
	Inner  *omitting         `json:"inner,omitempty"`
	Empty  struct{}          `json:"empty,omitempty"`
	Any    any               `json:"any,omitempty"`
	Bytes  []byte            `json:"bytes,omitempty"`
	Time   time.Time         `json:"time,omitempty"`
	Zero   time.Time         `json:"zero,omitzero"`
	Number int               `json:"number,omitzero"`
	Point  point             `json:"point,omitempty"`
	Where  point             `json:"where,omitzero"`
}

type texts struct {
	Count int     `json:"count,string"`
	Flag  bool    `json:"flag,string"`
	Rate  float64 `json:"rate,string"`
	Name  string  `json:"name,string"`
	Next  *int    `json:"next,string,omitempty"`
	Some  int     `json:"some,string,omitempty"`
}

type Extra struct {
	Note  string `json:"note,omitempty"`
	Count int    `json:"count,omitempty,string"`
}

type Base struct {
	ID    int    `json:"id,omitempty"`
	Title string `json:"title"`
}

type embedding struct {
	Base
	*Extra
	Title string
	Skip  int `json:"-"`
	Dash  int `json:"dash"`
}

type values struct {
	Duration time.Duration
	Hash     [4]byte
	Bytes    []byte
	Raw      stdjson.RawMessage
	When     time.Time
	ByNumber map[int]string
	ByLevel  map[level]bool
	Levels   []level
	Points   []*point
	Any      map[string]any
	Nested   map[string]map[string]omitting
	Pointer  **int
	HTML     string `json:"html"`
	Snake    string `json:"snake_case"`
}

// An encodingCase tests one Go value as arguments and as a result.
type encodingCase struct {
	name string
	test func(t *testing.T, c *mcp.Client)
}

func encodingOf[T any](s *mcp.Server, name string, value T) encodingCase {
	anyObject := stdjson.RawMessage(`{"type":"object"}`)
	var received stdjson.RawMessage // the arguments of the last call
	mcp.AddTool(s, &mcp.Tool{Name: name + "-raw", InputSchema: anyObject},
		func(_ context.Context, in stdjson.RawMessage) (string, error) {
			received = in
			return "", nil
		})
	var decoded T
	mcp.AddTool(s, &mcp.Tool{Name: name + "-any", InputSchema: anyObject},
		func(_ context.Context, in T) (string, error) {
			decoded = in
			return "", nil
		})
	addValueTool(s, name, value)
	addValueTool(s, name+"-result",
		&mcp.CallToolResult{StructuredContent: value, Meta: mcp.Meta{"com.example/x": value}})
	return encodingCase{name, func(t *testing.T, c *mcp.Client) {
		std, err := stdjson.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		var want T
		if err := stdjson.Unmarshal(std, &want); err != nil {
			t.Fatal(err)
		}
		if _, err := c.CallTool(t.Context(), name+"-raw", value); err != nil {
			t.Fatal(err)
		}
		sameJSON(t, "arguments", received, std)
		if _, err := c.CallTool(t.Context(), name+"-any", stdjson.RawMessage(std)); err != nil {
			t.Fatal(err)
		}
		sameValue(t, "decoded arguments", decoded, want)
		for _, tool := range []string{name, name + "-result"} {
			r, err := c.CallTool(t.Context(), tool, nil)
			if err != nil || r.IsError {
				t.Fatal(r, err)
			}
			raw, _ := r.StructuredContent.(stdjson.RawMessage)
			sameJSON(t, tool, raw, std)
			if m, ok := r.Meta["com.example/x"]; ok {
				meta, _ := stdjson.Marshal(m)
				sameJSON(t, tool+" _meta", meta, std)
			}
			got, err := mcp.CallTool[T](t.Context(), c, tool, nil)
			if err != nil {
				t.Fatal(err)
			}
			sameValue(t, tool+" decoded", got, want)
		}
	}}
}

// sameJSON compares JSON with the output of encoding/json.
func sameJSON(t *testing.T, what string, got, std []byte) {
	t.Helper()
	var a, b any
	if err := stdjson.Unmarshal(got, &a); err != nil {
		t.Errorf("%s: got %q: %v", what, got, err)
	}
	if err := stdjson.Unmarshal(std, &b); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%s: got %s, want %s", what, got, std)
	}
}

func sameValue(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

// Arguments and results are encoded and decoded as encoding/json does.
func TestGoValuesAreEncodedAsByEncodingJSON(t *testing.T) {
	s := mcp.NewServer("s", "1", nil)
	one, noon := 1, time.Date(2026, 7, 28, 12, 0, 0, 5, time.UTC)
	pointer := &one
	full := omitting{
		Count: 1, Flag: true, Rate: 0.5, Name: "a", Pair: [2]int{1, 0}, Level: 3, Tags: []string{""},
		Labels: map[string]string{"": ""}, Next: new(int), Inner: &omitting{}, Any: []any{nil}, Bytes: []byte{0, 255},
		Time: noon, Zero: noon, Number: 1, Point: point{1, 2}, Where: point{0, 1},
	}
	cases := []encodingCase{
		encodingOf(s, "empty", omitting{}),
		encodingOf(s, "full", full),
		encodingOf(s, "made",
			omitting{Tags: []string{}, Labels: map[string]string{}, Bytes: []byte{}, Any: map[string]any{}}),
		encodingOf(s, "texts", texts{}),
		encodingOf(s, "texts-full", texts{1, true, 0.5, `a"b`, &one, 2}),
		encodingOf(s, "embedded", embedding{}),
		encodingOf(s, "embedded-full", embedding{Base{1, "hidden"}, &Extra{"a", 2}, "b", 3, 4}),
		encodingOf(s, "values", values{
			Duration: time.Minute, Hash: [4]byte{1, 2}, Bytes: []byte("ab"), Raw: stdjson.RawMessage(`{"a":[1]}`),
			When: noon, ByNumber: map[int]string{-1: "a"}, ByLevel: map[level]bool{2: true}, Levels: []level{1},
			Points: []*point{{1, 2}, nil}, Any: map[string]any{"n": nil, "f": 1.5},
			Nested: map[string]map[string]omitting{"a": {"b": full}}, Pointer: &pointer, HTML: "<&>\u2028", Snake: "s",
		}),
	}
	c, err := mcp.Connect(t.Context(), mcp.InMemory(s), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) { tc.test(t, c) })
	}
}
