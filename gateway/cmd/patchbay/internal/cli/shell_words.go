package cli

import (
	"errors"
	"strings"
)

// splitWords splits a line into words with the quoting of a POSIX shell: \c, '…' and "…" quote, and
// # at the beginning of a word begins a comment. Nothing is expanded.
func splitWords(line string) ([]string, error) {
	words, last, err := scanWords(line)
	if err == nil && last.begun {
		words = append(words, last.text)
	}
	return words, err
}

// A partialWord is the word at the end of a line.
type partialWord struct {
	text    string
	begun   bool // there is a word, which may be empty
	comment bool // the line ends in a comment
}

// errUnclosed is returned for a quote that has no end.
var errUnclosed = errors.New("unclosed quote: want another ' or \", or a character after \\")

// scanWords returns the words of a line that have ended, and the last one. After an unclosed quote
// the last word has the text so far.
func scanWords(line string) (words []string, last partialWord, err error) {
	var word strings.Builder
	begun := false
	quote := byte(0)
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote == '\'' && c == '\'', quote == '"' && c == '"':
			quote = 0
		case quote == '\'':
			word.WriteByte(c)
		case c == '\\' && (quote == 0 || i+1 < len(line) && strings.IndexByte("$`\"\\", line[i+1]) >= 0):
			if i++; i == len(line) {
				return words, partialWord{text: word.String(), begun: true}, errUnclosed
			}
			begun = true
			word.WriteByte(line[i])
		case quote == '"':
			word.WriteByte(c)
		case c == '\'' || c == '"':
			begun, quote = true, c
		case c == ' ' || c == '\t':
			if begun {
				words = append(words, word.String())
				word.Reset()
				begun = false
			}
		case c == '#' && !begun:
			return words, partialWord{comment: true}, nil
		default:
			begun = true
			word.WriteByte(c)
		}
	}
	if quote != 0 {
		err = errUnclosed
	}
	return words, partialWord{text: word.String(), begun: begun}, err
}
