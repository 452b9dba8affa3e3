# frozen_string_literal: true

module Bench
  # System calls per operation, by name: strace counts two runs of different length, and the difference is what the
  # operations cost, without start, warm-up of the VM and end.
  module Calls
    FACTOR = 3
    SELDOM = 0.005 # fewer per operation are not named

    module_function

    def available? = system("strace", "-V", out: File::NULL, err: File::NULL)

    # @yieldparam wrapper [Array<String>] what to put before the command of a run
    # @yieldparam operations [Integer]
    # @yieldreturn [Hash, Session::Failure]
    # @return [Hash, Session::Failure] :calls per operation, :names with calls per operation each, :control: the epoll_ctl
    #   calls of both runs, :runs: their operations
    def count(operations)
      runs = [operations, operations * FACTOR]
      counts = runs.map do |size|
        Tempfile.create("strace") do |file|
          result = yield ["strace", "-c", "-f", "-qq", "-o", file.path], size
          return result if result.is_a?(Session::Failure)

          parse(file.read)
        end
      end
      difference(counts, runs)
    end

    # Each run has made its warm-up too, which is a tenth: both grow alike.
    def difference(counts, runs)
      more = (runs.last - runs.first) * (1 + (1.0 / Run::WARM_UP))
      names = counts.last.to_h { |name, calls| [name, ((calls - counts.first.fetch(name, 0)) / more).round(4)] }
      often = names.select { |_, calls| calls >= SELDOM }.sort_by { |_, calls| -calls }.to_h
      { calls: names.values.sum, names: often, runs: runs, control: counts.map { |calls| calls.fetch("epoll_ctl", 0) } }
    end

    def parse(text)
      text.lines.filter_map do |line|
        fields = line.split
        [fields.last, Integer(fields[3])] if fields.first&.match?(/\A\d+\.\d+\z/) && fields.last != "total"
      end.to_h
    end
  end
end
