# frozen_string_literal: true

module Wide
  # The file of known differences. One line each, with five fields between bars:
  #
  #   Rubies | backends | file and test | class of the reason | reason
  #
  # Rubies and backends are words, or "all". After the test, "(sometimes)" says that the difference does not show in each run,
  # and "(crash)" that the process dies. A star in the test's name stands for anything.
  class Known
    # VM: Ruby itself, shown with its own scheduler or by its source. test: the test assumes that its thread is blocked, or
    # counts the VM's own objects. inherent: no scheduler can do it. Our own errors have no class: they are mended.
    CLASSES = %w[VM test inherent].freeze
    ALL = "all"
    MARKS = / \((sometimes|crash)\)/

    Line = Struct.new(:rubies, :backends, :test, :sometimes, :crash, :reason_class, :reason) do
      # @param version [String] as in RUBY_VERSION
      def covers?(version, backend)
        (rubies == [ALL] || rubies.any? { |ruby| "#{version}.".start_with?("#{ruby}.") }) &&
          (backends == [ALL] || backends.include?(backend))
      end

      def test?(name) = File.fnmatch?(test, name)
      def to_s = "#{reason_class}: #{reason}"
    end

    attr_reader :lines

    def self.read(path) = new(File.readlines(path, chomp: true))

    # @raise [ArgumentError] a line that is none
    def initialize(text)
      @lines = text.each_with_index.filter_map { |line, index| parse(line, index + 1) unless line.empty? || line.start_with?("#") }
    end

    # @return [Line, nil] that explains this difference. A crash needs a line that says so.
    def find(version, backend, difference)
      @lines.find { |line| line.test?(difference.test) && line.crash == difference.crash? && line.covers?(version, backend) }
    end

    # Whether a line is about this test, and not about a whole class of tests.
    def mentions?(version, backend, test) = @lines.any? { |line| line.test == test && line.covers?(version, backend) }

    # Whether a line says that this test differs in each run.
    def expects?(version, backend, test)
      @lines.any? { |line| line.test == test && !line.sometimes && line.covers?(version, backend) }
    end

    private

    def parse(line, number)
      fields = line.split("|", 5).map(&:strip)
      raise ArgumentError, "line #{number} has #{fields.size} fields instead of 5: #{line}" unless fields.size == 5 && fields.none?(&:empty?)
      raise ArgumentError, "line #{number}: the class #{fields[3]} is none of #{CLASSES.join(", ")}" unless CLASSES.include?(fields[3])

      marks = fields[2].scan(MARKS).flatten
      Line.new(fields[0].split, fields[1].split, fields[2].gsub(MARKS, ""), marks.include?("sometimes"), marks.include?("crash"), *fields[3..])
    end
  end
end
