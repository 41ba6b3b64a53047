package term

import (
	"errors"
	"strings"
)

// SplitWords splits a line into words as a POSIX shell does: \c, '…' and "…" quote, and # at the
// beginning of a word starts a comment. It expands no variables and patterns.
func SplitWords(line string) ([]string, error) {
	words, last, err := ScanWords(line)
	if err == nil && last.begun {
		words = append(words, last.Text)
	}
	return words, err
}

// A partialWord is the word at the end of a line.
type partialWord struct {
	Text    string
	begun   bool // there is a word, which may be empty
	Comment bool // the line ends in a comment
}

// errUnclosed means that a quote lacks its end.
var errUnclosed = errors.New("unclosed quote: want another ' or \", or a character after \\")

// ScanWords returns the complete words of a line, and the last word apart. If the last word
// contains an unclosed quote, it holds the text so far.
func ScanWords(line string) (words []string, last partialWord, err error) {
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
				return words, partialWord{Text: word.String(), begun: true}, errUnclosed
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
			return words, partialWord{Comment: true}, nil
		default:
			begun = true
			word.WriteByte(c)
		}
	}
	if quote != 0 {
		err = errUnclosed
	}
	return words, partialWord{Text: word.String(), begun: begun}, err
}
