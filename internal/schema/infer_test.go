package schema_test

import (
	stdjson "encoding/json"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/schema"
)

type color string

func (color) Enum() []color { return []color{"red", "green"} }

type level int

func (*level) Enum() []level { return []level{1, 2, 3} }

type noColor string

func (noColor) Enum() []noColor { return nil }

type treeNode struct {
	Name     string     `json:"name"`
	Children []treeNode `json:"children,omitempty"`
}

type forest struct {
	First  *treeNode            `json:"first"`
	Others map[string]*treeNode `json:"others,omitempty"`
}

type ping struct {
	Pong *pong `json:"pong"`
}

type pong struct {
	Ping *ping `json:"ping"`
}

type list []list

type identified struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
}

// twoNodes returns a struct of two recursive types that have the same name.
func twoNodes() any {
	type nöde struct{ Next *nöde }
	first := nöde{}
	second := func() any {
		type nöde []nöde
		return nöde{}
	}()
	return reflect.New(reflect.StructOf([]reflect.StructField{
		{Name: "A", Type: reflect.TypeOf(first)}, {Name: "B", Type: reflect.TypeOf(second)},
	})).Elem().Interface()
}

type Identified identified

type hidden struct {
	Kind int `json:"kind"`
}

type SelfEmbedded struct {
	*SelfEmbedded
	A int
}

// Requirement: SCH-07
func TestInferredSchemas(t *testing.T) {
	for name, c := range map[string]struct {
		typ  reflect.Type
		want string
	}{
		"bool":          {reflect.TypeFor[bool](), `{"type":"boolean"}`},
		"int":           {reflect.TypeFor[int](), `{"type":"integer"}`},
		"int16":         {reflect.TypeFor[int16](), `{"type":"integer","minimum":-32768,"maximum":32767}`},
		"uint64":        {reflect.TypeFor[uint64](), `{"type":"integer","minimum":0}`},
		"float32":       {reflect.TypeFor[float32](), `{"type":"number"}`},
		"string":        {reflect.TypeFor[string](), `{"type":"string"}`},
		"bytes":         {reflect.TypeFor[[]byte](), `{"type":"string","contentEncoding":"base64"}`},
		"byte array":    {reflect.TypeFor[[2]byte](), `{"type":"array","items":{"type":"integer","minimum":0,"maximum":255},"minItems":2,"maxItems":2}`},
		"time":          {reflect.TypeFor[time.Time](), `{"type":"string","format":"date-time"}`},
		"duration":      {reflect.TypeFor[time.Duration](), `{"type":"integer"}`},
		"big integer":   {reflect.TypeFor[big.Int](), `{"type":"integer"}`},
		"text method":   {reflect.TypeFor[netip.Addr](), `{"type":"string"}`},
		"raw JSON":      {reflect.TypeFor[stdjson.RawMessage](), `{}`},
		"any":           {reflect.TypeFor[any](), `{}`},
		"slice":         {reflect.TypeFor[[]*string](), `{"type":"array","items":{"type":"string"}}`},
		"map":           {reflect.TypeFor[map[string]int8](), `{"type":"object","additionalProperties":{"type":"integer","minimum":-128,"maximum":127}}`},
		"map of any":    {reflect.TypeFor[map[int]any](), `{"type":"object"}`},
		"pointer":       {reflect.TypeFor[**int](), `{"type":"integer"}`},
		"enum":          {reflect.TypeFor[color](), `{"type":"string","enum":["red","green"]}`},
		"enum of *T":    {reflect.TypeFor[[]level](), `{"type":"array","items":{"type":"integer","enum":[1,2,3]}}`},
		"empty":         {reflect.TypeFor[struct{}](), `{"type":"object","properties":{},"additionalProperties":false}`},
		"recursion":     {reflect.TypeFor[treeNode](), `{"type":"object","properties":{"name":{"type":"string"},"children":{"type":"array","items":{"$ref":"#"}}},"required":["name"],"additionalProperties":false}`},
		"slice of self": {reflect.TypeFor[list](), `{"type":"array","items":{"$ref":"#"}}`},
		"recursive part": {reflect.TypeFor[forest](), `{"type":"object","properties":{"first":{"$ref":"#/$defs/treeNode"},"others":{"type":"object","additionalProperties":{"$ref":"#/$defs/treeNode"}}},"additionalProperties":false,` +
			`"$defs":{"treeNode":{"type":"object","properties":{"name":{"type":"string"},"children":{"type":"array","items":{"$ref":"#/$defs/treeNode"}}},"required":["name"],"additionalProperties":false}}}`},
		"mutual recursion": {reflect.TypeFor[[]ping](), `{"type":"array","items":{"$ref":"#/$defs/ping"},` +
			`"$defs":{"ping":{"type":"object","properties":{"pong":{"type":"object","properties":{"ping":{"$ref":"#/$defs/ping"}},"additionalProperties":false}},"additionalProperties":false}}}`},
		"optional fields": {reflect.TypeFor[struct {
			A int
			B int  `json:"b,omitempty"`
			C int  `json:",omitzero"`
			D *int `json:"d"`
			E int  `json:"-"`
			g int
			H int `jsonschema:"default=3"`
		}](), `{"type":"object","properties":{"A":{"type":"integer"},"b":{"type":"integer"},"C":{"type":"integer"},"d":{"type":"integer"},"H":{"type":"integer","default":3}},"required":["A"],"additionalProperties":false}`},
		"embedding": {reflect.StructOf([]reflect.StructField{
			{Name: "Identified", Type: reflect.TypeFor[Identified](), Anonymous: true},
			{Name: "Kind", Type: reflect.TypeFor[bool](), Tag: `json:"kind"`},
		}), `{"type":"object","properties":{"id":{"type":"string"},"kind":{"type":"boolean"}},"required":["id","kind"],"additionalProperties":false}`},
		"embedded pointer": {reflect.TypeFor[struct{ *Identified }](), `{"type":"object","properties":{"id":{"type":"string"},"kind":{"type":"string"}},"additionalProperties":false}`},
		"fields that hide each other": {reflect.StructOf([]reflect.StructField{
			{Name: "Identified", Type: reflect.TypeFor[Identified](), Anonymous: true},
			{Name: "Hidden", Type: reflect.TypeFor[hidden](), Anonymous: true},
		}), `{"type":"object","properties":{"id":{"type":"string"}},"required":["id"],"additionalProperties":false}`},
		"field that a tag names": {reflect.StructOf([]reflect.StructField{
			{Name: "Tagged", Type: reflect.TypeFor[struct {
				A string `json:"Kind"`
			}](), Anonymous: true},
			{Name: "Plain", Type: reflect.TypeFor[struct{ Kind int }](), Anonymous: true},
		}), `{"type":"object","properties":{"Kind":{"type":"string"}},"required":["Kind"],"additionalProperties":false}`},
		"recursive parts of one name": {reflect.TypeOf(twoNodes()), `{"type":"object","properties":{"A":{"$ref":"#/$defs/n_de"},"B":{"$ref":"#/$defs/n_de2"}},"required":["A","B"],"additionalProperties":false,"$defs":{` +
			`"n_de":{"type":"object","properties":{"Next":{"$ref":"#/$defs/n_de"}},"additionalProperties":false},"n_de2":{"type":"array","items":{"$ref":"#/$defs/n_de2"}}}}`},
		"embedded in itself": {reflect.TypeFor[SelfEmbedded](), `{"type":"object","properties":{"A":{"type":"integer"}},"required":["A"],"additionalProperties":false}`},
		"string option": {reflect.TypeFor[struct {
			N int `json:"n,string" jsonschema:"default=5"`
		}](), `{"type":"object","properties":{"n":{"type":"string","default":"5"}},"additionalProperties":false}`},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := schema.For(c.typ)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(s.JSON()); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestTagsAddKeywords(t *testing.T) {
	s, err := schema.For(reflect.TypeFor[struct {
		A string   `jsonschema:"first, with commas, a=b and more,title=The A,pattern=^a{1,3}$"`
		B string   `jsonschema:"the size, enum = small"`
		C string   `jsonschema:"the size,enum=small | medium|large,default=medium,header=Size"`
		D float64  `jsonschema:"minimum=0.5,exclusiveMaximum=1e3,multipleOf=0.5"`
		E []string `jsonschema:"some,minItems=1,uniqueItems=true,minLength=2,enum=ab|cd,default=ab"`
		F string   `jsonschema:"enum=s|m,titles=Small|Medium"`
		G []string `jsonschema:"enum=s|m,titles=Small|Medium,maxItems=1"`
		H int      `jsonschema:"enum=1|2,default=2"`
		I []int    `jsonschema:"default=[1,2]"`
		J bool     `jsonschema:"default=true"`
		K any      `jsonschema:"description=whatever is required, really"`
		L color    `jsonschema:"titles=Red|Green"`
		M []color  `jsonschema:"default=red|green"`
		N struct {
			X int `json:"x"`
		} `jsonschema:"default={\"x\":1}"`
		O string `jsonschema:"format=email,minLength=3,maxLength=20"`
	}]())
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Properties map[string]stdjson.RawMessage }
	if err := stdjson.Unmarshal(s.JSON(), &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"A": `{"type":"string","description":"first, with commas, a=b and more","title":"The A","pattern":"^a{1,3}$"}`,
		"B": `{"type":"string","description":"the size","enum":["small"]}`,
		"C": `{"type":"string","description":"the size","enum":["small","medium","large"],"x-mcp-header":"Size","default":"medium"}`,
		"D": `{"type":"number","minimum":0.5,"exclusiveMaximum":1e3,"multipleOf":0.5}`,
		"E": `{"type":"array","description":"some","items":{"type":"string","minLength":2,"enum":["ab","cd"]},"minItems":1,"uniqueItems":true,"default":["ab"]}`,
		"F": `{"type":"string","oneOf":[{"const":"s","title":"Small"},{"const":"m","title":"Medium"}]}`,
		"G": `{"type":"array","items":{"anyOf":[{"const":"s","title":"Small"},{"const":"m","title":"Medium"}]},"maxItems":1}`,
		"H": `{"type":"integer","enum":[1,2],"default":2}`,
		"I": `{"type":"array","items":{"type":"integer"},"default":[1,2]}`,
		"J": `{"type":"boolean","default":true}`,
		"K": `{"description":"whatever is required, really"}`,
		"L": `{"type":"string","oneOf":[{"const":"red","title":"Red"},{"const":"green","title":"Green"}]}`,
		"M": `{"type":"array","items":{"type":"string","enum":["red","green"]},"default":["red","green"]}`,
		"N": `{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"],"additionalProperties":false,"default":{"x":1}}`,
		"O": `{"type":"string","format":"email","minLength":3,"maxLength":20}`,
	} {
		if string(got.Properties[name]) != want {
			t.Errorf("%s\ngot  %s\nwant %s", name, got.Properties[name], want)
		}
	}
}

func TestTypesWithoutSchema(t *testing.T) {
	type bad struct{ C chan int }
	for name, c := range map[string]struct {
		typ  reflect.Type
		want []string // parts of the error: the place, and what is allowed there
	}{
		"nil":          {nil, []string{"nil type"}},
		"channel":      {reflect.TypeFor[chan int](), []string{"chan int", "want structs, slices"}},
		"deep channel": {reflect.TypeFor[struct{ A []map[string]bad }](), []string{"field A: items: values: field C: chan int"}},
		"function":     {reflect.TypeFor[func()](), []string{"func()"}},
		"complex":      {reflect.TypeFor[complex64](), []string{"complex64"}},
		"interface":    {reflect.TypeFor[error](), []string{"error", "any"}},
		"json.Number":  {reflect.TypeFor[stdjson.Number](), []string{"json.Number", "want int64"}},
		"key":          {reflect.TypeFor[map[float64]int](), []string{"map[float64]int", "keys"}},
		"empty enum":   {reflect.TypeFor[noColor](), []string{"noColor.Enum returned no values"}},
		"json option": {reflect.TypeFor[struct {
			A int `json:"a,required"`
		}](), []string{"A", "required", "omitempty"}},
		"json name": {reflect.TypeFor[struct {
			A int `json:"'a'"`
		}](), []string{"A", "quotes"}},
		"json dash": {reflect.TypeFor[struct {
			A int `json:"-,"`
		}](), []string{"A", "trailing ','"}},
		"hidden pointer": {reflect.TypeFor[struct{ *identified }](), []string{"identified", "embed the struct itself"}},
		"two of one name": {reflect.StructOf([]reflect.StructField{
			{Name: "A", Type: reflect.TypeFor[int](), Tag: `json:"x"`}, {Name: "B", Type: reflect.TypeFor[int](), Tag: `json:"x"`},
		}), []string{"A and B conflict"}},
		"embedded value": {reflect.TypeFor[struct{ color }](), []string{"color"}},
		"unknown option": {reflect.TypeFor[struct {
			A int `jsonschema:"the a,minimun=1"`
		}](), []string{"field A", "minimun", `did you mean "minimum"`}},
		"short option": {reflect.TypeFor[struct {
			A int `jsonschema:"min=1"`
		}](), []string{"field A", `"min"`, `did you mean "minimum"`}},
		"bare required": {reflect.TypeFor[struct {
			A int `jsonschema:"required"`
		}](), []string{"field A", `"required" is not an option`, "required unless it is a pointer, has omitempty"}},
		"bare optional": {reflect.TypeFor[struct {
			A string `jsonschema:"description=the a, optional ,minLength=1"`
		}](), []string{"field A", `"optional" is not an option`, "omitempty"}},
		"bare nullable": {reflect.TypeFor[struct {
			A int `jsonschema:"minimum=1,nullable"`
		}](), []string{"field A", `"nullable" is not an option`, "an optional field"}},
		"tag of another library": {reflect.TypeFor[struct {
			A int `json:"a" jsonschema_description:"the a"`
		}](), []string{"field A", "unknown tag jsonschema_description", `jsonschema:"`}},
		"option twice": {reflect.TypeFor[struct {
			A string `jsonschema:"enum=a,enum=b"`
		}](), []string{"field A", "enum occurs twice"}},
		"option of another type": {reflect.TypeFor[struct {
			A int `jsonschema:"minLength=1"`
		}](), []string{"field A", "minLength does not fit an integer"}},
		"option of any": {reflect.TypeFor[struct {
			A any `jsonschema:"minimum=1"`
		}](), []string{"field A", "minimum does not fit a field of any type"}},
		"item option": {reflect.TypeFor[struct {
			A []int `jsonschema:"pattern=x"`
		}](), []string{"field A", "items", "pattern does not fit an integer"}},
		"not a number": {reflect.TypeFor[struct {
			A int `jsonschema:"minimum=one"`
		}](), []string{"minimum", "malformed"}},
		"not a count": {reflect.TypeFor[struct {
			A string `jsonschema:"minLength=-1"`
		}](), []string{"/properties/A/minLength", "at least 0"}},
		"not a pattern": {reflect.TypeFor[struct {
			A string `jsonschema:"pattern=("`
		}](), []string{"/properties/A/pattern", "not supported"}},
		"enum of type": {reflect.TypeFor[struct {
			A int `jsonschema:"enum=1|x"`
		}](), []string{"field A", "enum", "integer"}},
		"enum of range": {reflect.TypeFor[struct {
			A int8 `jsonschema:"enum=1|300"`
		}](), []string{"field A", "enum value 300", "at most 127"}},
		"enum of text": {reflect.TypeFor[struct {
			A netip.Addr `jsonschema:"enum=::1|localhost"`
		}](), []string{"field A", "localhost"}},
		"default of type": {reflect.TypeFor[struct {
			A int `jsonschema:"default=x"`
		}](), []string{"field A", "default x", "an integer"}},
		"default of range": {reflect.TypeFor[struct {
			A int `jsonschema:"maximum=3,default=4"`
		}](), []string{"field A", "default 4", "at most 3"}},
		"default of enum": {reflect.TypeFor[struct {
			A string `jsonschema:"enum=a|b,default=c"`
		}](), []string{"field A", "default c", `"a", "b"`}},
		"default of time": {reflect.TypeFor[struct {
			A time.Time `jsonschema:"default=now"`
		}](), []string{"field A", "default now", "date-time"}},
		"default list": {reflect.TypeFor[struct {
			A []int `jsonschema:"default=1|x"`
		}](), []string{"field A", "default 1|x"}},
		"titles": {reflect.TypeFor[struct {
			A string `jsonschema:"enum=a|b,titles=A"`
		}](), []string{"1 titles for 2 enum values"}},
		"titles without enum": {reflect.TypeFor[struct {
			A string `jsonschema:"titles=A"`
		}](), []string{"1 titles for 0 enum values"}},
		"header of number": {reflect.TypeFor[struct {
			A float64 `jsonschema:"header=A"`
		}](), []string{"A", "x-mcp-header", "string, integer or boolean"}},
		"header name": {reflect.TypeFor[struct {
			A string `jsonschema:"header=a b"`
		}](), []string{"A", "x-mcp-header", "a header name"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := schema.For(c.typ)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want %q in it", err, want)
				}
			}
		})
	}
}

type pair[T any] struct{ A, B T }

type nestedPair[T any] = pair[pair[pair[pair[T]]]]

func TestInferenceIsLimited(t *testing.T) {
	if _, err := schema.For(reflect.TypeFor[nestedPair[nestedPair[int]]]()); err != nil {
		t.Error(err)
	}
	_, err := schema.For(reflect.TypeFor[nestedPair[nestedPair[nestedPair[nestedPair[int]]]]]()) // 2^16 integers
	if err == nil || !strings.Contains(err.Error(), "more than 10000 parts") {
		t.Errorf("got %v", err)
	}
}

func TestForReturnsTheSameSchemaForAType(t *testing.T) {
	first, err := schema.For(reflect.TypeFor[treeNode]())
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if s, err := schema.For(reflect.TypeFor[treeNode]()); err != nil || s != first {
				t.Errorf("got %p, %v, want %p", s, err, first)
			}
		})
	}
	group.Wait()
}

// Requirement: ELI-07
func TestSchemasOfForms(t *testing.T) {
	type form struct {
		identified
		Age    int       `json:"age,omitempty" jsonschema:"in years,minimum=0,maximum=150,default=30"`
		Rate   float64   `json:"rate,omitempty"`
		Sure   bool      `json:"sure" jsonschema:"default=false"`
		Mail   string    `json:"mail" jsonschema:"format=email"`
		When   time.Time `json:"when"`
		Color  color     `json:"color"`
		Size   string    `json:"size" jsonschema:"enum=s|m,titles=Small|Medium"`
		Colors []color   `json:"colors" jsonschema:"minItems=1"`
		Sizes  []string  `json:"sizes" jsonschema:"enum=s|m,titles=Small|Medium"`
	}
	s, err := schema.ForElicitation(reflect.TypeFor[form]())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"type":"object","properties":{"id":{"type":"string"},"kind":{"type":"string"},` +
		`"age":{"type":"integer","description":"in years","minimum":0,"maximum":150,"default":30},"rate":{"type":"number"},` +
		`"sure":{"type":"boolean","default":false},"mail":{"type":"string","format":"email"},"when":{"type":"string","format":"date-time"},` +
		`"color":{"type":"string","enum":["red","green"]},` +
		`"size":{"type":"string","oneOf":[{"const":"s","title":"Small"},{"const":"m","title":"Medium"}]},` +
		`"colors":{"type":"array","items":{"type":"string","enum":["red","green"]},"minItems":1},` +
		`"sizes":{"type":"array","items":{"anyOf":[{"const":"s","title":"Small"},{"const":"m","title":"Medium"}]}}},` +
		`"required":["id","kind","mail","when","color","size","colors","sizes"]}`
	if string(s.JSON()) != want {
		t.Errorf("got  %s\nwant %s", s.JSON(), want)
	}
	for name, c := range map[string]struct {
		typ  reflect.Type
		want string
	}{
		"not a struct":    {reflect.TypeFor[string](), "a form is a struct"},
		"object":          {reflect.TypeFor[struct{ A identified }](), "field A: a form cannot have an object"},
		"map":             {reflect.TypeFor[struct{ A map[string]string }](), "field A: a form cannot have an object"},
		"recursion":       {reflect.TypeFor[treeNode](), "field Children"},
		"any":             {reflect.TypeFor[struct{ A any }](), "field A: a form cannot have a field of any type"},
		"list of strings": {reflect.TypeFor[struct{ A []string }](), "field A: the items of a list in a form must be values of a string enum"},
		"list of numbers": {reflect.TypeFor[struct{ A []level }](), "field A: the items of a list in a form must be values of a string enum"},
		"number enum":     {reflect.TypeFor[struct{ A level }](), "field A: a form does not have enum for an integer"},
		"bytes":           {reflect.TypeFor[struct{ A []byte }](), "field A: a form does not have contentEncoding"},
		"pattern": {reflect.TypeFor[struct {
			A string `jsonschema:"pattern=a"`
		}](), "field A: a form does not have pattern"},
		"format": {reflect.TypeFor[struct {
			A string `jsonschema:"format=uuid"`
		}](), `field A: a form does not have format "uuid"`},
		"unique": {reflect.TypeFor[struct {
			A []color `jsonschema:"uniqueItems=true"`
		}](), "field A: a form does not have uniqueItems"},
	} {
		if _, err := schema.ForElicitation(c.typ); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
