# frozen_string_literal: true

module Windows
  # The tests that cannot pass on Windows or under Wine. A line each:
  #
  #   test | reason
  #
  # A test is a file of tests/ruby/, which is not run then, or one method. A method is run, and one that passes fails the check, so
  # the list says the truth. One that is marked "(hangs)" is not run, and "(sometimes)" may pass.
  class Skips
    Line = Struct.new(:test, :mark, :reason)

    FORM = /\A(\S+)(?: \((hangs|sometimes)\))? \| (.+)\z/
    private_constant :FORM

    # @raise [ArgumentError] a line that is none
    def initialize(path)
      lines = File.readlines(path, chomp: true).reject { |line| line.empty? || line.start_with?("#") }
      @lines = lines.to_h do |line|
        test, mark, reason = line.match(FORM)&.captures
        raise ArgumentError, "#{path}: #{line}" unless reason

        [test, Line.new(test, mark, reason)]
      end
    end

    # @return [Boolean] whether the file is run
    def file?(name) = !@lines.key?(name)

    # @return [Array<String>] methods that are not run
    def hanging = @lines.each_value.select { |line| line.mark == "hangs" }.map { |line| line.test.split("#").last }

    # @return [Module] for Minitest::Test: skips each method of the list, with its reason
    def hook
      lines = @lines
      Module.new do
        define_method(:before_setup) do
          super()
          line = lines["#{self.class}##{name}"]
          skip "Windows: #{line.reason}" if line
        end
      end
    end

    # @param result [Hash] of a test, as tests/ruby/helper.rb writes it
    # @return [Hash] S for one that has failed as expected, F for one that has not
    def judge(result)
      line = @lines[result["id"]] or return result
      case result["code"]
      when "F", "E" then result.merge("code" => "S", "reason" => "Windows: #{line.reason}")
      when "." then line.mark == "sometimes" ? result : result.merge("code" => "F", "listed" => true)
      else result
      end
    end
  end
end
