package jsonscan

// Scan validates the value that starts at data[at], after white space, and returns the offset
// behind it.
//
// The error is a [*SyntaxError]. If it is [*SyntaxError.WellFormed], end is still the end of the
// value; otherwise end is where the error was detected.
func Scan(data []byte, at int, lim Limits) (end int, err error) {
	s := scanner{data: data, lim: lim.orDefault()}
	end, _ = s.value(s.space(at), 0, nil)
	return end, s.err()
}
