package columnar

// VariableBytes returns what b counts of a batch's bytes to know when it is full.
func (b *Builder) VariableBytes() int { return b.bytes }
