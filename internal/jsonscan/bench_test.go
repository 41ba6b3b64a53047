package jsonscan_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

func benchmarkTexts() map[string][]byte {
	row := `{"id":12345,"name":"row","tags":["a","b"],"score":0.25,"active":true,"note":"some words"},`
	return map[string][]byte{
		"message":          []byte(message),
		"1 MiB ASCII":      []byte(`"` + strings.Repeat("lorem ipsum dolor ", 1<<20/18) + `"`),
		"1 MiB non-ASCII":  []byte(`"` + strings.Repeat("東京と京都。", 1<<20/18) + `"`),
		"1 MiB of objects": []byte("[" + strings.TrimSuffix(strings.Repeat(row, 1<<20/len(row)), ",") + "]"),
		"10,000 keys": object(10_000, func(i int) string {
			return strings.Repeat("k", 100) + string(rune('A'+i%26)) + strings.Repeat("z", i/26)
		}),
	}
}

func BenchmarkValid(b *testing.B) {
	for name, text := range benchmarkTexts() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if err := jsonscan.Valid(text, jsonscan.Limits{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkValidEncodingJSON(b *testing.B) {
	for name, text := range benchmarkTexts() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if !json.Valid(text) {
					b.Fatal("not valid")
				}
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	data := []byte(message)
	for b.Loop() {
		if _, ok := jsonscan.Get(data, "params"); !ok {
			b.Fatal("no params")
		}
	}
}

func BenchmarkAppendQuote(b *testing.B) {
	for name, text := range map[string]string{
		"short":           "hello, how are you today",
		"1 MiB ASCII":     strings.Repeat("lorem ipsum dolor ", 1<<20/18),
		"1 MiB non-ASCII": strings.Repeat("東京と京都。", 1<<20/18),
		"1 MiB of lines":  strings.Repeat("lorem \"ipsum\" dolor\n", 1<<20/20),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			var dst []byte
			for b.Loop() {
				dst = jsonscan.AppendQuote(dst[:0], text)
			}
		})
	}
}
