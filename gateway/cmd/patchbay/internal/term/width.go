package term

import (
	"strings"
	"unicode"
)

// wide are the runes with two columns: East Asian Width W and F of Unicode 15, and emoji.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x1100, 0x115F, 1}, {0x231A, 0x231B, 1}, {0x2329, 0x232A, 1}, {0x23E9, 0x23EC, 1}, {0x23F0, 0x23F3, 3},
		{0x25FD, 0x25FE, 1}, {0x2614, 0x2615, 1}, {0x2648, 0x2653, 1}, {0x267F, 0x2693, 20}, {0x26A1, 0x26AA, 9},
		{0x26AB, 0x26BD, 18}, {0x26BE, 0x26C4, 6}, {0x26C5, 0x26CE, 9}, {0x26D4, 0x26EA, 22}, {0x26F2, 0x26F3, 1},
		{0x26F5, 0x26FA, 5}, {0x26FD, 0x2705, 8}, {0x270A, 0x270B, 1}, {0x2728, 0x274C, 36}, {0x274E, 0x2753, 5},
		{0x2754, 0x2755, 1}, {0x2757, 0x2757, 1}, {0x2795, 0x2797, 1}, {0x27B0, 0x27BF, 15}, {0x2B1B, 0x2B1C, 1},
		{0x2B50, 0x2B55, 5}, {0x2E80, 0x303E, 1}, {0x3041, 0x3247, 1}, {0x3250, 0x4DBF, 1}, {0x4E00, 0xA4C6, 1},
		{0xA960, 0xA97C, 1}, {0xAC00, 0xD7A3, 1}, {0xF900, 0xFAFF, 1}, {0xFE10, 0xFE19, 1}, {0xFE30, 0xFE6B, 1},
		{0xFF01, 0xFF60, 1}, {0xFFE0, 0xFFE6, 1}},
	R32: []unicode.Range32{
		{0x16FE0, 0x18CD5, 1}, {0x1AFF0, 0x1B2FB, 1}, {0x1F004, 0x1F0CF, 203}, {0x1F18E, 0x1F191, 3},
		{0x1F192, 0x1F19A, 1}, {0x1F1E6, 0x1F202, 1}, {0x1F210, 0x1F320, 1}, {0x1F32D, 0x1F335, 1},
		{0x1F337, 0x1F37C, 1}, {0x1F37E, 0x1F393, 1}, {0x1F3A0, 0x1F3CA, 1}, {0x1F3CF, 0x1F3D3, 1},
		{0x1F3E0, 0x1F3F0, 1}, {0x1F3F4, 0x1F3F8, 4}, {0x1F3F9, 0x1F43E, 1}, {0x1F440, 0x1F442, 2},
		{0x1F443, 0x1F4FC, 1}, {0x1F4FF, 0x1F53D, 1}, {0x1F54B, 0x1F54E, 1}, {0x1F550, 0x1F567, 1},
		{0x1F57A, 0x1F595, 27}, {0x1F596, 0x1F5A4, 14}, {0x1F5FB, 0x1F64F, 1}, {0x1F680, 0x1F6C5, 1},
		{0x1F6CC, 0x1F6D0, 4}, {0x1F6D1, 0x1F6D2, 1}, {0x1F6D5, 0x1F6DF, 1}, {0x1F6EB, 0x1F6EC, 1},
		{0x1F6F4, 0x1F6FC, 1}, {0x1F7E0, 0x1F7F0, 1}, {0x1F90C, 0x1F93A, 1}, {0x1F93C, 0x1F945, 1},
		{0x1F947, 0x1F9FF, 1}, {0x1FA70, 0x1FAFF, 1}, {0x20000, 0x3FFFD, 1}},
}

// runeWidth returns the number of columns of a rune on a terminal.
func runeWidth(r rune) int {
	switch {
	case r == '\t':
		return 8 // at most
	case r < 0x300:
		return 1
	case r >= 0x1160 && r <= 0x11FF, unicode.In(r, unicode.Mn, unicode.Me): // Hangul vowels, and marks
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}

func isWide(r rune) bool { return runeWidth(r) > 1 }

// TextWidth returns the number of columns of a line.
func TextWidth(line string) (n int) {
	for _, r := range line {
		n += runeWidth(r)
	}
	return n
}

// cutWidth cuts a line after a number of columns, and returns both parts.
func cutWidth(line string, columns int) (head, rest string) {
	for i, r := range line {
		if columns -= runeWidth(r); columns < 0 {
			return line[:i], line[i:]
		}
	}
	return line, ""
}

// minWrapped is the width of the narrowest terminal for which text is wrapped.
const minWrapped = 20

// Wrap breaks lines at spaces. Words with wide characters may break anywhere, because such scripts
// do not use spaces. Other long words must stay whole: the terminal breaks them, and a URI can be
// copied. A new line is indented as its line, plus hang. Wrap returns text unchanged if width is
// less than minWrapped.
func Wrap(text string, width int, hang string) string {
	if width < minWrapped {
		return text
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		body, ended := strings.CutSuffix(line, "\n")
		wrapLine(&out, body, width, hang)
		if ended {
			out.WriteByte('\n')
		}
	}
	return out.String()
}

func wrapLine(out *strings.Builder, line string, width int, hang string) {
	if TextWidth(line) <= width {
		out.WriteString(line)
		return
	}
	body := strings.TrimLeft(line, " ")
	indentation := line[:min(len(line)-len(body), width/2)]
	out.WriteString(indentation)
	next := indentation + hang[:min(len(hang), width/4)]
	column, empty := len(indentation), true // of the current line
	newLine := func() {
		out.WriteString("\n" + next)
		column, empty = len(next), true
	}
	for i, word := range strings.Split(body, " ") {
		columns := TextWidth(word)
		if !empty && column+1+columns > width {
			newLine()
		} else if i > 0 && !empty {
			out.WriteByte(' ')
			column++
		}
		for columns > width-column && strings.ContainsFunc(word, isWide) {
			head, rest := cutWidth(word, width-column)
			if head == "" && empty {
				break // a rune that is wider than the line
			}
			out.WriteString(head)
			newLine()
			word, columns = rest, TextWidth(rest)
		}
		out.WriteString(word)
		column, empty = column+columns, empty && word == ""
	}
}
