package skills

// ParseFrontmatter is parseFrontmatter, for the fuzzer and the tables of the format.
var ParseFrontmatter = parseFrontmatter
