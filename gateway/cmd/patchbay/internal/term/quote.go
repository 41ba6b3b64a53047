package term

import (
	"fmt"
	"strings"
)

// ShellWord quotes a word for a shell, with octal escapes for bytes that would act on a terminal.
func ShellWord(word string) string {
	if quoted := "'" + word + "'"; CleanLine(quoted) != quoted {
		return escapedWord(word)
	}
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+=,"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// escapedWord quotes a word with $'…', which bash, ksh and zsh read.
func escapedWord(word string) string {
	var b strings.Builder
	b.WriteString("$'")
	for i := range len(word) {
		switch c := word[i]; {
		case c == '\'' || c == '\\':
			b.WriteString(`\` + string(c))
		case c <= ' ' || c >= 0x7F:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}
