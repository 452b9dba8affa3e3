# frozen_string_literal: true

module Bench
  # The library that a scheduler is from, by its constants.
  module Library
    # The selector that Async waits with is a library of its own.
    BESIDE = { "Async" => "IO::Event" }.freeze

    module_function

    # @return [String] such as "Async 2.43.0 + IO::Event 1.19.4 (EPoll)"; the name alone if it has no VERSION
    def of(scheduler)
      name = scheduler.class.name.to_s.split("::").first.to_s
      own = with_version(name)
      beside = BESIDE[name]
      return own unless beside

      "#{own} + #{with_version(beside)} (#{selector(scheduler)})"
    end

    def with_version(name)
      [name, Object.const_get("#{name}::VERSION")].join(" ")
    rescue NameError
      name
    end

    def selector(scheduler) = scheduler.instance_variable_get(:@selector).class.name.to_s.split("::").last
  end
end
